"""Stage acquire: take the recording's bytes in under a name of our own, with their SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from voxint.recordings.address import rules_of, url_for_people
from voxint.recordings.errors import AttemptFailed, ClaimLost, StageFailed
from voxint.recordings.stages.files import new_file
from voxint.services.download import AddressRefusedError, fetch
from voxint.services.exchange import AbandonedError, ExchangeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.recordings.stages.context import StageContext

_CHUNK = 4 << 20


def acquire(context: StageContext) -> dict[str, Any]:
    """Copy the source into the run's folder.

    Raises:
        StageFailed: it is gone, cannot be read, changed while it was copied, or is nothing that may be fetched.
    """
    taken = _fetched(context) if context.run.source_kind == "url" else _copied(context)
    context.notes.record(sha256=taken["sha256"])
    same = context.notes.same_recording(taken["sha256"])
    if same:
        context.warn(f"this is the same recording as run {', '.join(str(each) for each in same)}")
    return {**taken, "same_as": list(same)}


def _copied(context: StageContext) -> dict[str, Any]:
    source = Path(context.run.source)
    try:
        file = source.open("rb")
    except OSError as error:
        raise StageFailed(f"cannot read {source.name}: {error.strerror or error}") from None
    with file, new_file(context, "source", ".media") as (temporary, final):
        before = source.stat()
        with temporary.open("wb") as out:
            digest, size = _copy(file, out, lambda done: _step(context, done, before.st_size))
        after = source.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size:
            raise StageFailed(f"{source.name} changed while it was read: add it again when it is complete")
        if size == 0:
            raise StageFailed(f"{source.name} is empty")
    return {"file": final.name, "sha256": digest, "bytes": size, "name": source.name}


def _fetched(context: StageContext) -> dict[str, Any]:
    """From its address, under the same rules as when it was added: what the name stands for may have changed."""
    digest = hashlib.sha256()
    size = 0
    url = context.run.source
    with new_file(context, "source", ".media") as (temporary, final):
        with temporary.open("wb") as out:

            def write(chunk: bytes) -> None:
                nonlocal size
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)

            try:
                remote = fetch(url, rules_of(context.settings), write, context.claim.lost)
            except AbandonedError:
                raise ClaimLost from None
            except AddressRefusedError as error:
                raise StageFailed(f"cannot fetch {url_for_people(url)}: {error}") from None
            except ExchangeError as error:
                raise AttemptFailed(f"cannot fetch {url_for_people(url)}: {error}") from None
        if size == 0:
            raise StageFailed(f"{url_for_people(url)} is empty")
    return {
        "file": final.name,
        "sha256": digest.hexdigest(),
        "bytes": size,
        "name": url_for_people(url),
        "content_type": remote.content_type,
    }


def _copy(file: BinaryIO, out: BinaryIO, step: Callable[[int], None]) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(_CHUNK):
        out.write(chunk)
        digest.update(chunk)
        size += len(chunk)
        step(size)
    return digest.hexdigest(), size


def _step(context: StageContext, done: int, size: int) -> None:
    context.check_claim()
    context.progress(min(done / size, 1.0) if size else 1.0)
