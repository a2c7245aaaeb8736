"""Gets a model's weights into the kept volume: each file by revision, checked by size and SHA-256, whole or not at all.

Files gather in a folder beside the model's own, which takes its name once everything is there. A fetch that was cut off
goes on where it stopped. The token is sent to the hub alone, never to where the hub sends us on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPResponse
    from pathlib import Path

    from voxint_models.weights.catalogue import File, Weights

DEFAULT_HUB = "https://huggingface.co"
_BLOCK = 1 << 20
_READ_SECONDS = 60.0
_SPARE_BYTES = 256 << 20


class FetchError(Exception):
    """The weights could not be fetched; the text says why and what to do."""


@dataclass(frozen=True)
class Source:
    """Where weights come from. The token is a secret."""

    hub: str = DEFAULT_HUB
    token: str | None = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Source(hub={self.hub!r}, token={'set' if self.token else None})"


def fetch(weights: Weights, root: Path, source: Source, progress: Callable[[int], None] = lambda _: None) -> Path:
    """The model's folder, with everything in it. `progress` is told the bytes that have come. Raises FetchError."""
    goal = root / weights.folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root):
            if goal.is_dir() and all(_whole(goal / file.path, file) for file in weights.files):
                return goal
            if weights.gated and not source.token:
                raise FetchError(
                    f"{weights.name} wants an account: accept its licence at {weights.page} and set HF_TOKEN",
                )
            gather = root / f"{weights.folder}.part"
            _room(weights, gather, root)
            for file in weights.files:
                _one(weights, file, gather, source, progress)
            if goal.exists():
                shutil.rmtree(goal)
            gather.rename(goal)
    except OSError as error:
        raise FetchError(f"cannot write the weights to {root}: {error.strerror or error}") from None
    return goal


def _one(weights: Weights, file: File, gather: Path, source: Source, progress: Callable[[int], None]) -> None:
    place = gather / file.path
    if _whole(place, file):
        progress(file.size)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(place.name + ".part")
    url = weights.address.format(hub=source.hub, name=weights.name, revision=weights.revision, path=file.path)
    try:
        _download(url, file, part, source.token if weights.gated else None, progress)
    except urllib.error.HTTPError as error:
        raise FetchError(_refused(weights, url, error.code)) from None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise FetchError(f"cannot fetch {url}: {reason}; run the command again to go on where it stopped") from None
    if part.stat().st_size < file.size:
        raise FetchError(f"{url} ended early; run the command again to go on where it stopped")
    if part.stat().st_size != file.size or _digest(part) != file.sha256:
        part.unlink()
        raise FetchError(f"{url} is not the file that was expected: its size or SHA-256 differs; nothing was kept")
    part.rename(place)


def _download(url: str, file: File, part: Path, token: str | None, progress: Callable[[int], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have > file.size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "voxint"})  # noqa: S310 - the catalogue's address
    if have:
        request.add_header("Range", f"bytes={have}-")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if have == file.size:
        progress(have)
        return
    with urllib.request.urlopen(request, timeout=_READ_SECONDS) as answer:  # noqa: S310 - as above
        goes_on = answer.status == 206
        progress(have if goes_on else 0)
        _write(answer, part, "ab" if goes_on else "wb", file.size - (have if goes_on else 0), progress)


def _write(answer: HTTPResponse, part: Path, mode: str, most: int, progress: Callable[[int], None]) -> None:
    """What comes, and no more than one byte beyond what may come."""
    with part.open(mode) as out:
        left = most + 1
        while left > 0 and (block := answer.read(min(_BLOCK, left))):
            out.write(block)
            left -= len(block)
            progress(len(block))


def _refused(weights: Weights, url: str, status: int) -> str:
    if status in {401, 403}:
        return (
            f"cannot fetch {url}: {status}. Accept the licence at {weights.page}, and set HF_TOKEN to a token of yours"
        )
    return f"cannot fetch {url}: the server answered {status}"


def _room(weights: Weights, gather: Path, root: Path) -> None:
    there = sum(path.stat().st_size for path in gather.rglob("*") if path.is_file()) if gather.exists() else 0
    needed, free = weights.size - there + _SPARE_BYTES, shutil.disk_usage(root).free
    if needed > free:
        raise FetchError(f"{weights.name} needs {needed >> 20} MiB more under {root}, and {free >> 20} MiB are free")


def _whole(path: Path, file: File) -> bool:
    return path.is_file() and path.stat().st_size == file.size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One fetch at a time into one folder."""
    fd = os.open(root / ".fetching", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FetchError(f"another fetch is writing to {root}: wait for it") from None
        yield
    finally:
        os.close(fd)
