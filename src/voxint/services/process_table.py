"""Finds the processes of our services in the machine's process table, whoever started the worker that looks.

A process is ours where its environment carries the mark that we started it with; its children inherit that. The mark
holds the state folder too, so that two installations on one machine never touch each other's.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxint.services.process_record import Record

SERVICE_MARK = "VOXINT_SERVICE"
FOLDER_MARK = "VOXINT_SERVICE_STATE"

_SAME_START_SECONDS = 1.0
"""Two readings of one process's start agree within this; they are derived from the clock at boot."""


@dataclass(frozen=True, slots=True)
class Living:
    """A process that has not ended, told from a later one with the same pid by its start (seconds since the epoch)."""

    pid: int
    started: float

    @property
    def alive(self) -> bool:
        """Whether it still lives. A zombie does not: it holds no memory."""
        process = self._process()
        return process is not None and _lives(process)

    def send(self, number: int) -> None:
        """Send a signal, if it is still the same process.

        Raises:
            PermissionError: it belongs to somebody else now.
        """
        process = self._process()
        if process is None:
            return
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {self.pid} may not be signalled") from error

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) <= _SAME_START_SECONDS
        except psutil.NoSuchProcess:
            return None
        return process if same else None


def marks(service: str, folder: Path) -> dict[str, str]:
    """What is added to the environment of a service's process."""
    return {SERVICE_MARK: service, FOLDER_MARK: str(folder.resolve())}


def started_at(pid: int) -> float | None:
    """When a process started, in seconds since the epoch; None where there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def living(folder: Path, records: Mapping[str, Record | None]) -> dict[str, tuple[Living, ...]]:
    """Every living process of every service.

    Args:
        folder: the state folder that is part of the mark.
        records: what is kept on disk, by service; a recorded process, and its group, count without a mark.

    Raises:
        OSError: the process table cannot be read.
    """
    found: dict[str, list[Living]] = {name: [] for name in records}
    home = str(folder.resolve())
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            service = _owner(process, home, records)
            if service in found and _lives(process):
                found[service].append(Living(pid, process.create_time()))
    return {name: tuple(processes) for name, processes in found.items()}


def _owner(process: psutil.Process, home: str, records: Mapping[str, Record | None]) -> str | None:
    environ: Mapping[str, str] = {}
    with contextlib.suppress(psutil.AccessDenied, psutil.ZombieProcess, OSError):
        environ = process.environ()
    if environ.get(FOLDER_MARK) == home:
        return environ.get(SERVICE_MARK)
    for name, record in records.items():
        if record is not None and record.pid is not None and _is_of(process, record, readable=bool(environ)):
            return name
    return None


def _is_of(process: psutil.Process, record: Record, *, readable: bool) -> bool:
    """Whether a process without a mark is the recorded one, or of its group."""
    try:
        group = os.getpgid(process.pid)
    except OSError:
        return False
    if record.pid is None or record.started is None or group != record.pid:
        return False
    leader = started_at(record.pid)
    if leader is not None:  # a group's number is not given out again while the group lives
        return abs(leader - record.started) <= _SAME_START_SECONDS
    return not readable and bool(process.create_time() >= record.started - _SAME_START_SECONDS)


def _lives(process: psutil.Process) -> bool:
    try:
        if process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            return True
        return bool(process.num_threads() > 1)  # its first thread has ended, but others still hold the memory
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
