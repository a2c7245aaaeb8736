"""The journal: one small file that is replaced as a whole, and is on the disk before anything is done because of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING

from voxint_broker.record import JournalError, Record, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "journal.json"


def _no_hook(_point: str) -> None:
    """Between the steps of a write nothing happens, but in the tests that kill the broker there."""


class Journal:
    """The journal in a folder, which one broker uses at a time."""

    def __init__(self, folder: Path, hook: Callable[[str], None] = _no_hook) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._new = folder / (NAME + ".new")
        self._hook = hook
        self._lock_fd: int | None = None

    def open(self) -> None:
        """Make the folder, and take it for this process alone.

        Raises:
            JournalError: it cannot be made, or another broker uses it.
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
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise JournalError(f"cannot read the journal {self._path}: {error}") from error
        try:
            return from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise JournalError(f"cannot read the journal {self._path}: it is not JSON") from error
        except JournalError as error:
            raise JournalError(f"cannot read the journal {self._path}: {error}") from error

    def write(self, record: Record) -> None:
        """Put the record on the disk: written, synced, renamed, and the rename synced.

        Raises:
            JournalError: it could not be written; the record before it stands.
        """
        data = (json.dumps(to_json(record), indent=1) + "\n").encode()
        try:
            self._hook("journal: before write")
            fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                half = len(data) // 2
                os.write(fd, data[:half])
                self._hook("journal: half written")
                os.write(fd, data[half:])
                self._hook("journal: before fsync")
                os.fsync(fd)
            finally:
                os.close(fd)
            self._hook("journal: before rename")
            self._new.rename(self._path)
            self._hook("journal: before folder fsync")
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._hook("journal: after write")
        except OSError as error:
            with contextlib.suppress(OSError):
                self._new.unlink()
            raise JournalError(f"cannot write the journal {self._path}: {error.strerror}") from error
