"""The journal: what the broker must not forget, on the disk before anything is done because of it.

Two files take turns. A record is written over the older one, in place and with its checksum, so the newer one stands
until the write is complete. Nothing grows, so one `fdatasync` puts a record on the disk: a new file, its rename and
the folder's sync take ten times as long on a busy disk, and a full disk cannot stop the journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxint_broker.record import JournalError, Record, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ("journal-0.json", "journal-1.json")
"""The two files. The record with an even number stands in the first."""

_SIZE = 4 * 1024
"""Bytes of a new file. A longer record makes it longer, in steps of the same size."""


def _no_hook(_point: str) -> None:
    """Between the steps of a write nothing happens, but in the tests that kill the broker there."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What stands in one of the files: nothing yet (number 0), or a record as JSON values."""

    number: int
    record: Any = None


class Journal:
    """The journal in a folder, which one broker uses at a time."""

    def __init__(self, folder: Path, hook: Callable[[str], None] = _no_hook) -> None:
        self._folder = folder
        self._paths = tuple(folder / name for name in NAMES)
        self._hook = hook
        self._number = 0
        self._lock_fd: int | None = None

    def open(self) -> None:
        """Make the folder and the files, and take them for this process alone.

        Raises:
            JournalError: they cannot be made, or another broker uses them.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"cannot use the folder {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise JournalError(f"another broker uses {self._folder}: stop it, or set another state_dir") from error
        self._lock_fd = fd

    def close(self) -> None:
        """Leave the folder to another process."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def read(self) -> Record | None:
        """The last record; None where there is none.

        Raises:
            JournalError: it cannot be read. A broker must not guess who holds the GPU, so it does not start then.
        """
        entries = [_entry(path) for path in self._paths]
        found = [entry for entry in entries if isinstance(entry, _Entry)]
        broken = [entry for entry in entries if isinstance(entry, str)]
        newest = max(found, key=lambda entry: entry.number, default=None)
        if broken and newest is None:
            raise JournalError(f"cannot read the journal in {self._folder}: {'; '.join(broken)}")
        if newest is None or newest.number == 0:
            return None
        self._number = newest.number
        try:
            return from_json(newest.record)
        except JournalError as error:
            path = self._paths[newest.number % 2]
            raise JournalError(f"cannot read the journal {path}: {error}") from error

    def write(self, record: Record) -> None:
        """Put the record on the disk, in the place of the one before the last.

        Raises:
            JournalError: it could not be written; the record before it stands.
        """
        number = self._number + 1
        path = self._paths[number % 2]
        try:
            for each in self._paths:
                if not each.exists():
                    self._make(each)
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._put(fd, _data(number, record, os.fstat(fd).st_size))
            finally:
                os.close(fd)
        except OSError as error:
            raise JournalError(f"cannot write the journal {path}: {error.strerror}") from error
        self._number = number

    # --- parts -------------------------------------------------------------------------------------------------

    def _put(self, fd: int, data: bytes) -> None:
        try:
            self._hook("journal: before write")
            half = len(data.rstrip()) // 2
            _write(fd, data[:half], 0)
            self._hook("journal: half written")
            _write(fd, data[half:], half)
            self._hook("journal: before fsync")
            os.fdatasync(fd)
            self._hook("journal: after write")
        except OSError:
            # What may have got half-way must not be taken for the newest record.
            with contextlib.suppress(OSError):
                _write(fd, b"!", 0)
                os.fdatasync(fd)
            raise

    def _make(self, path: Path) -> None:
        """An empty file of full length, so that writes in it change nothing but their own bytes."""
        new = path.with_name(path.name + ".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(fd, b" " * _SIZE, 0)
            self._hook("journal: before fsync of a new file")
            os.fsync(fd)
        finally:
            os.close(fd)
        self._hook("journal: before rename")
        new.rename(path)
        self._hook("journal: before folder fsync")
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _entry(path: Path) -> _Entry | str | None:
    """What stands in a file; None where there is no file, and words where it cannot be told."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        return f"{path.name}: {why}"
    if not text.strip():
        return _Entry(0)
    try:
        value = json.loads(text)
        number, told, record = value["number"], value["sha256"], value["record"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return f"{path.name} is not complete"
    if not isinstance(number, int) or told != _sum(number, record):
        return f"{path.name} is damaged"
    return _Entry(number, record)


def _data(number: int, record: Record, size: int) -> bytes:
    """The file's whole content, filled up with spaces."""
    value = to_json(record)
    text = json.dumps({"number": number, "sha256": _sum(number, value), "record": value}, indent=1) + "\n"
    data = text.encode()
    return data.ljust(max(-(-len(data) // _SIZE) * _SIZE, size))


def _sum(number: int, record: object) -> str:
    text = json.dumps([number, record], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _write(fd: int, data: bytes, place: int) -> None:
    """Write all of it."""
    while data:
        written = os.pwrite(fd, data, place)
        data, place = data[written:], place + written
