"""Addresses in settings: one that cannot be used is refused at the start, and what is secret in it is never told."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr


def http_url(value: str) -> str:
    """The same, where it is an http or https address with a host.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        port_ok = False
        parts = urlsplit("")
    if not port_ok or parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "must be an http:// or https:// address with a host"
        raise ValueError(msg)
    return value


def _secret_url(value: SecretStr) -> SecretStr:
    http_url(value.get_secret_value())
    return value


_DATABASE_URL = re.compile(
    r"(?:postgresql(?:\+psycopg)?|postgres)://"
    r"(?:[^:/]*(?::[^@]*)?@)?(?:\[[^\]@/?]*\]|[^\[\]@:/?]*)(?::\d*)?(?:[/?].*)?",
    re.DOTALL,
)
_ESCAPED = "a name or password in it has : as %3A, / as %2F, @ as %40, # as %23 and ? as %3F"


def _database_url(value: SecretStr) -> SecretStr:
    """An address that is cut at the wrong place would show a part of its password where the host is named."""
    text = value.get_secret_value()
    if not text.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        raise ValueError("must be a postgresql:// address")
    if not _DATABASE_URL.fullmatch(text):
        raise ValueError(f"has no usable host and port: {_ESCAPED}")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must be a redis://, rediss:// or unix:// address")
    try:
        _ = urlsplit(text).port
    except ValueError:
        raise ValueError(f"has no usable host and port: {_ESCAPED}") from None
    return value


# A bare name is the kind of a setting's value; what it refuses, it says without the value.
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
SecretUrl = Annotated[SecretStr, AfterValidator(_secret_url)]
