"""What process control keeps on disk of each service: one small JSON file, replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Record:
    """A service that was started.

    `pid` and `started` (seconds since the epoch) are None from the moment before the start until the moment after it:
    a crash in between leaves that, and the process is found by its mark. `stop_since` is a reading of the monotonic
    clock, which is one for all processes of a boot.
    """

    service: str
    pid: int | None = None
    started: float | None = None
    log_offset: int = 0
    stop_since: float | None = None
    trouble: str | None = None
    """How the start before this one ended, in words, where it ended by itself."""


def path_of(folder: Path, service: str) -> Path:
    """The file of one service."""
    return folder / f"{service}.json"


def read(folder: Path, service: str) -> Record | None:
    """What is kept; None where nothing is, or what is there cannot be used (the mark finds the process then)."""
    try:
        value: Any = json.loads(path_of(folder, service).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("service") != service:
        return None
    known = {field.name: value[field.name] for field in fields(Record) if field.name in value}
    whole = all(_fits(known.get(name), kinds) for name, kinds in _KINDS.items())
    return Record(**known) if whole else None


_KINDS: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "started": (int, float),
    "log_offset": (int,),
    "stop_since": (int, float),
    "trouble": (str,),
}


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool))


def write(folder: Path, record: Record) -> None:
    """Keep a record, so that it survives a crash right after.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, record.service)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def forget(folder: Path, service: str) -> None:
    """Take the record away: the service is stopped, on purpose."""
    with contextlib.suppress(OSError):
        path_of(folder, service).unlink(missing_ok=True)
