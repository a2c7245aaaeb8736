"""Recordings that are at an address: what counts as one, how it is shown, and the rules for fetching it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from voxint.services.download import Rules

if TYPE_CHECKING:
    from voxint.settings import Settings

_URL = re.compile(r"https?://", re.IGNORECASE)
LOOK_TOTAL = timedelta(seconds=30)
PUBLIC_ONLY = Rules(most_bytes=8 << 30, total=LOOK_TOTAL)
"""The rules where no settings say otherwise."""


def is_url(source: str) -> bool:
    """Whether a source is an address; `http:x.mp4` is a file name."""
    return _URL.match(source) is not None


def rules_of(settings: Settings, *, total: timedelta | None = None) -> Rules:
    """The operator's rules. `total` bounds one exchange; the limit of a model service's call by default."""
    limit = total or timedelta(seconds=settings.service_timeout_seconds)
    if settings.url_allow_private:
        return Rules(settings.url_max_bytes, limit, allowed=lambda _address: True)
    return Rules(settings.url_max_bytes, limit)


def url_for_people(url: str) -> str:
    """An address without what may be a secret in it: names, passwords, and everything behind the path."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{host}{port}{parts.path}"[:200]


def name_in(url: str) -> str:
    """The file's name in an address, without its ending; the host's name where there is none."""
    parts = urlsplit(url)
    return PurePosixPath(unquote(parts.path)).stem or parts.hostname or "recording"
