"""Who may load a model onto the GPU: a lock file stands for the card, and a ledger says who was on it and when.

The audio services share the lock, the language model takes it alone. Each process takes it before it loads anything
and keeps it until it has exited: the kernel gives it back, also after a kill -9. It is not how turns are taken (the
lease is), it is what shows that they were: a process that comes while the other side is still there ends at once.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from voxint_models import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXIT_TAKEN = 70
"""The exit status of a process that found the card taken by the other side."""

_TAIL_BYTES = 262_144
_EVENT_BYTES = 2_000


class Side(StrEnum):
    """The two that take turns."""

    AUDIO = "audio"
    LLM = "llm"


class CardTakenError(Exception):
    """The other side is on the card. The text says who, in one line."""


@dataclass(frozen=True)
class CardFiles:
    """Where lock and ledger are. Without a lock nothing is guarded, without a ledger nothing is written down."""

    lock: Path | None = None
    ledger: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> CardFiles:
        """CARD_LOCK and CARD_LEDGER; empty counts as not set."""
        lock, ledger = environ.get("CARD_LOCK"), environ.get("CARD_LEDGER")
        return cls(Path(lock) if lock else None, Path(ledger) if ledger else None)


class Card:
    """The card, taken. Made by `take`; `leave` writes the end, and the process's exit gives the lock back."""

    def __init__(self, files: CardFiles, side: Side, service: str, lock_fd: int | None) -> None:
        self._files = files
        self._side = side
        self._service = service
        self._lock_fd = lock_fd
        self._left = False
        self._write("start", None)

    @contextmanager
    def request(self, kind: str) -> Iterator[None]:
        """Write down that a request of this kind is being served, and when it was over."""
        self._write("request_start", kind)
        try:
            yield
        finally:
            self._write("request_end", kind)

    def leave(self) -> None:
        """Write the end down, once. The lock stays until the process is gone."""
        if not self._left:
            self._left = True
            self._write("end", None)

    def _write(self, event: str, request: str | None) -> None:
        """One line in one write: lines of several processes never mix. A full disk must not stop the service."""
        if self._files.ledger is None:
            return
        line = json.dumps(
            {
                "event": event,
                "side": self._side.value,
                "service": self._service,
                "pid": os.getpid(),
                "at": clock.stamp(),
                "request": request,
            },
        )
        try:
            fd = os.open(self._files.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(fd, line.encode() + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            sys.stderr.write(f"{self._service}: cannot write to the card's ledger {self._files.ledger}: {error}\n")


def take(files: CardFiles, side: Side, service: str) -> Card:
    """Take the card without waiting: shared for audio, alone for the language model.

    Raises CardTakenError when the other side has it, OSError when the lock file cannot be used at all.
    """
    if files.lock is None:
        return Card(files, side, service, None)
    fd = _open_lock(files.lock)
    how = fcntl.LOCK_SH if side is Side.AUDIO else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno not in {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}:
            raise
        raise CardTakenError(
            f"{service}: cannot load on the card: {_in_the_way(files.ledger)}; "
            f"the {side.value} side starts when it has gone",
        ) from None
    return Card(files, side, service, fd)


def take_or_exit(side: Side, service: str) -> Card:
    """As `take` with the environment's files; where it fails: one line on stderr, and exit 70 (taken) or 1."""
    files = CardFiles.from_environment(os.environ)
    try:
        return take(files, side, service)
    except CardTakenError as error:
        _leave_with(str(error), EXIT_TAKEN)
    except OSError as error:
        _leave_with(f"{service}: cannot lock the card's file {files.lock}: {error.strerror or error}", 1)


def on_the_card(ledger: Path | None) -> list[dict[str, Any]]:
    """The start lines of processes that still live, oldest first. Broken lines are passed over."""
    live: dict[int, dict[str, Any]] = {}
    for entry in _entries(ledger):
        # A process that wrote its end may still be on its way out: it counts until it is gone.
        if entry.get("event") == "start":
            live.pop(entry["pid"], None)
            live[entry["pid"]] = entry
    return [entry for pid, entry in live.items() if _lives(pid)]


def _in_the_way(ledger: Path | None) -> str:
    entries = on_the_card(ledger)
    if not entries:
        return "another process holds it"
    last = entries[-1]
    return f"{last.get('service')} ({last.get('side')} side, pid {last['pid']}, since {last.get('at')}) holds it"


def _entries(ledger: Path | None) -> Iterator[dict[str, Any]]:
    if ledger is None:
        return
    try:
        with ledger.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        if len(line) > _EVENT_BYTES:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("pid"), int):
            yield entry


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _open_lock(path: Path) -> int:
    """Open the file, making it where it is not there. A file of another user's is opened for reading: that locks too."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _leave_with(text: str, status: int) -> NoReturn:
    sys.stderr.write(text + "\n")
    raise SystemExit(status)
