"""A service that is a child process of the broker: started as argv, stopped as a group, found again after a kill -9.

The broker may die without it. What the journal has (pid, start time, boot) finds it again; where the broker died
between the start and the write, a mark in the process's environment does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from typing import IO, TYPE_CHECKING, Any

from voxint_broker.adapters import processes
from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_broker.config_services import ChildService

MARK = "VOXINT_BROKER_SERVICE"
"""The environment variable that marks the processes of a service."""

_LAST_BYTES = 600
_WATCH_SECONDS = 600.0


class Child:
    """A child process that is a service."""

    def __init__(self, config: ChildService, owner: str) -> None:
        self.name = config.name
        self.keep_running = config.keep_running is not False
        self.quick = True
        self._config = config
        self._mark = f"{owner}/{config.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._ticks = 0
        self._exit: int | None = None
        self._log_start = 0
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self._left: tuple[int, ...] = ()
        self._others: dict[int, int] = {}

    def reconfigure(self, config: ChildService) -> None:
        """Go on with other numbers."""
        self._config = config

    def adopt(self, handle: dict[str, Any]) -> None:
        """Find the process: by the journal, else what bears its mark, by the group that it is in."""
        pid, ticks = handle.get("pid"), handle.get("ticks")
        this_boot = handle.get("boot") == processes.boot_id()
        if this_boot and isinstance(pid, int) and isinstance(ticks, int) and processes.is_same(pid, ticks):
            self._pid, self._ticks = pid, ticks
            return
        found = sorted(
            (seen.ticks, seen.group)
            for marked in processes.marked(self._marking(), self._others)
            if marked != os.getpid() and (seen := processes.stat(marked)) is not None and seen.group != os.getpgrp()
        )
        if found:
            leader = processes.stat(found[0][1])
            # Without its leader the group still is the service: an orphan that holds memory is to be stopped.
            self._pid, self._ticks = found[0][1], leader.ticks if leader is not None else found[0][0]

    def handle(self) -> dict[str, Any]:
        """Process id, start time and boot."""
        if self._pid is None:
            return {}
        return {"pid": self._pid, "ticks": self._ticks, "boot": processes.boot_id()}

    def watch(self, wake: Callable[[], None]) -> None:
        """Wait beside for the exit of whatever process it is."""
        self._wake = wake
        self._watch_exit()

    def look(self) -> Look:
        """Whether the process that was started lives, or its group, or what the last sweep found of it."""
        self._collect()
        with self._lock:
            pid, ticks, left = self._pid, self._ticks, self._left
        if pid is not None and processes.is_same(pid, ticks):
            return Look(Condition.RUNNING, f"process {pid}", (pid,))
        left = (processes.in_group(pid) if pid is not None else ()) or processes.living(left)
        if left:
            return Look(Condition.RUNNING, f"its child processes are left: {_named(left)}", left, leftover=True)
        with self._lock:
            if (self._pid, self._ticks) == (pid, ticks):
                self._pid = None  # all of its group is gone, and only a start can bring it back
                self._left = ()
        return Look(Condition.STOPPED, self.last_words())

    def sweep(self) -> Look:
        """Look at every process of the machine for the mark: one that left the group may be left as well."""
        look = self.look()
        if look.condition is not Condition.STOPPED:
            return look
        with self._lock:
            self._left = processes.marked(self._marking(), self._others)
        return self.look()

    def levels(self) -> tuple[StopLevel, ...]:
        """SIGTERM (or the configured signal), then SIGKILL of the group."""
        return (
            StopLevel(self._config.stop_signal, self._config.stop_seconds),
            StopLevel("SIGKILL", self._config.kill_seconds),
        )

    def stop(self, level: StopLevel) -> None:
        """Send the level's signal to the group, and to what a sweep found outside of it."""
        number = signal.Signals[level.name]
        self._collect()
        with self._lock:
            pid, ticks, left = self._pid, self._ticks, self._left
        for each in processes.living(left):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, number)
        if pid is None:
            return
        leader = processes.stat(pid)
        if leader is None or leader.ticks == ticks:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError as error:
                raise ServiceError(f"may not send {level.name} to process group {pid}") from error

    def start(self) -> None:
        """Start the process in a group of its own, with its output in its log."""
        environment = {**os.environ, **self._config.environment, MARK: self._mark}
        try:
            with self._log() as log:
                self._process = subprocess.Popen(
                    self._config.command,
                    cwd=self._config.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ServiceError(f"cannot start {self._config.command[0]}: {why}") from error
        self._exit = None
        seen = processes.stat(self._process.pid)
        with self._lock:
            self._pid, self._ticks = self._process.pid, seen.ticks if seen is not None else 0
            self._left = ()
        self._watch_exit()

    def wait(self, seconds: float) -> None:
        """Wait for the process's exit."""
        pid = self._pid
        if pid is None or not processes.is_same(pid, self._ticks):
            select.select([], [], [], seconds)
            return
        processes.wait_for_exit(pid, seconds)

    def last_words(self) -> str:
        """How it ended, and the end of what it wrote."""
        if self._exit is None:
            return ""
        how = f"signal {-self._exit}" if self._exit < 0 else f"exit status {self._exit}"
        said = self._tail()
        return f"{how}: {said}" if said else how

    # --- parts -------------------------------------------------------------------------------------------------

    def _watch_exit(self) -> None:
        pid, wake = self._pid, self._wake
        if pid is None or wake is None:
            return

        def run() -> None:
            while not processes.wait_for_exit(pid, _WATCH_SECONDS):
                pass
            wake()

        threading.Thread(target=run, daemon=True, name=f"exit-of-{self.name}").start()

    def _collect(self) -> None:
        process = self._process
        if process is not None and process.poll() is not None:
            self._exit = process.returncode
            self._process = None

    def _marking(self) -> str:
        return f"{MARK}={self._mark}"

    def _log(self) -> contextlib.AbstractContextManager[IO[bytes] | int]:
        if self._config.log is None:
            return contextlib.nullcontext(subprocess.DEVNULL)
        self._config.log.parent.mkdir(parents=True, exist_ok=True)
        log: IO[bytes] = self._config.log.open("ab")
        self._log_start = log.tell()
        return log

    def _tail(self) -> str:
        if self._config.log is None:
            return ""
        try:
            with self._config.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - _LAST_BYTES))
                lines = log.read(_LAST_BYTES).decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        kept = [line.strip() for line in lines if line.strip()]
        return kept[-1][:200] if kept else ""


def _named(pids: tuple[int, ...]) -> str:
    return ", ".join(f"{pid} ({processes.name_of(pid)})" for pid in pids[:5])
