"""Processes as Linux shows them in /proc: who is who after a restart, and what is left of a group."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROC = Path("/proc")
_GONE_STATES = frozenset("ZXx")
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stat:
    """The parts of /proc/PID/stat that tell a process apart. `ticks`: its start, in clock ticks since the boot."""

    state: str
    group: int
    ticks: int

    @property
    def lives(self) -> bool:
        """Whether it still runs: a process that only waits to be collected holds no memory."""
        return self.state not in _GONE_STATES


def stat(pid: int) -> Stat | None:
    """What /proc says of a process; None when there is none."""
    text = _read(f"/proc/{pid}/stat")
    # The name stands in brackets and may hold anything, brackets and spaces included.
    fields = text.decode("ascii", "replace").rpartition(")")[2].split()
    return Stat(fields[0], int(fields[2]), int(fields[19])) if len(fields) > 19 else None


def boot_id() -> str:
    """This boot of the machine: a process id of another one means nothing."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def is_same(pid: int, ticks: int) -> bool:
    """Whether the process that was started at `ticks` still lives under this id."""
    found = stat(pid)
    return found is not None and found.lives and found.ticks == ticks


def in_group(group: int) -> tuple[int, ...]:
    """The living processes of a process group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return ()
    except PermissionError:
        pass
    return tuple(pid for pid in _pids() if (found := stat(pid)) is not None and found.group == group and found.lives)


def living(pids: Iterable[int]) -> tuple[int, ...]:
    """Those of these processes that still live."""
    return tuple(pid for pid in pids if (found := stat(pid)) is not None and found.lives)


def marked(mark: str, others: dict[int, int] | None = None) -> tuple[int, ...]:
    """The living processes in whose environment this NAME=value was put when they were started.

    Args:
        mark: the variable and its value.
        others: what earlier looks for the same mark found to be without it, by process id; it is kept up to date. A
            process does not get the mark later, so only those are read that came since.
    """
    return _with_environment(b"\0" + mark.encode() + b"\0", others)


def marked_like(name: str) -> tuple[int, ...]:
    """The living processes that were started with this variable, whatever its value is."""
    return _with_environment(b"\0" + name.encode() + b"=")


def _with_environment(wanted: bytes, others: dict[int, int] | None = None) -> tuple[int, ...]:
    found = []
    before, now = dict(others or {}), {}
    for pid in _pids():
        # A folder of /proc has another inode number when its id has gone to another process.
        inode = _inode(pid) if others is not None else 0
        if inode and before.get(pid) == inode:
            now[pid] = inode
            continue
        environment = _read(f"/proc/{pid}/environ")
        if environment and wanted in b"\0" + environment + b"\0":
            seen = stat(pid)
            if seen is not None and seen.lives:
                found.append(pid)
        elif inode and environment:  # none can be read while it is being started: that says nothing yet
            now[pid] = inode
    if others is not None:
        others.clear()
        others.update(now)
    return tuple(found)


def _inode(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_ino  # noqa: PTH116 - without any comfort, as in _read
    except OSError:
        return 0


def wait_for_exit(pid: int, seconds: float) -> bool:
    """Wait until the process has exited, at most `seconds`; whether it has."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # an old kernel: look again after the time
        select.select([], [], [], seconds)
        return stat(pid) is None
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(seconds, 0) * 1000))
    finally:
        os.close(fd)


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty when it is gone, or a thread of the kernel."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words if word]


def name_of(pid: int) -> str:
    """A process's name for people: the program, without its other arguments, which may hold secrets."""
    words = command_line(pid)
    if not words:
        return "unknown"
    program = words[0].rpartition("/")[2][:60]
    if program.startswith("python") and len(words) > 1:
        script = words[2] if words[1] == "-m" and len(words) > 2 else words[1].rpartition("/")[2]
        return f"{program} {script[:60]}"
    return program


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names alone, many times a second


def _read(path: str) -> bytes:
    """A file of /proc; empty where it cannot be read. Hundreds are read in a row, so without any comfort."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = [os.read(fd, _PIECE)]
        while len(parts[-1]) == _PIECE:
            parts.append(os.read(fd, _PIECE))
    except OSError:
        return b""
    finally:
        os.close(fd)
    return b"".join(parts)
