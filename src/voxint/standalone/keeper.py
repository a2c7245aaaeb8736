"""Keeps one child process running: started again when it ends, after a pause that grows while it keeps ending."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxint.standalone import tether
from voxint.standalone.waiting import wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A child that lived so long is counted as well again."""
LOG_LIMIT_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """What is kept running."""

    name: str
    argv: tuple[str, ...]
    stop_seconds: float = 5.0
    """How long it may take to end after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A child's end: how, what it said last, and when it is started again (seconds from now)."""

    name: str
    how: str
    said: str
    again_in_seconds: float


class Keeper:
    """One program. Call `look` often, from the thread that starts the children."""

    def __init__(self, program: Program, log: Path, environ: Mapping[str, str]) -> None:
        self.program = program
        self.log = log
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._due = 0.0
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it now.

        Raises:
            OSError: its program is not there.
        """
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        self._process = tether.start(self.program.argv, self.log, env=self._environ)
        self._started = time.monotonic()

    def look(self) -> Ended | None:
        """Start it if it is due; tell of its end, once."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._due:
                try:
                    self.start()
                except OSError as error:  # a full disk, for one: it may have room again
                    why = f"could not be started: {error.strerror or error}"
                    return Ended(self.program.name, why, "", self._pause(now, self._failures + 1))
            return None
        if not self._gone():
            return None
        code = self._reap()
        pause = self._pause(now, 0 if now - self._started >= STEADY_SECONDS else self._failures + 1)
        return Ended(self.program.name, words(code), self.last_line(), pause)

    def _pause(self, now: float, failures: int) -> float:
        """Count a failure in a row, or the end of the row; gives the seconds until the next start."""
        self._failures = failures
        pause = min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10)) if failures > 1 else 0.1
        self._due = now + pause
        return pause

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and come back at once."""
        if self._process is not None and not self._gone():
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def stop(self, limit_seconds: float | None = None) -> bool:
        """Stop it and whatever it started in its session; True where SIGTERM was enough."""
        if self._process is None:
            return True
        self.ask_to_stop()
        politely = wait_for(self._gone, self.program.stop_seconds if limit_seconds is None else limit_seconds)
        self._reap()
        return politely

    def last_line(self) -> str:
        """What it wrote last."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]

    def _gone(self) -> bool:
        """Whether it has ended. Its exit code is left unread, so that its id, which is its group's, is not given away."""
        if self._process is None:
            return True
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _reap(self) -> int:
        """End what is left in its session, and read its exit code."""
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        self._process = None
        return code


def words(code: int) -> str:
    """An exit code as people say it."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
