"""Model services as child processes: started as process groups of their own, found again, stopped for good.

Nothing that matters is kept in this process alone. A worker that is killed and started again finds every service by
the mark in its environment and by what is kept on disk, takes none for another with the same pid, and goes on with a
stop where it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from voxint.gpu_phase.model import Condition, ServiceSeen
from voxint.gpu_phase.reasons import clean
from voxint.services import process_record as kept
from voxint.services.health import with_health
from voxint.services.process_record import Record
from voxint.services.process_table import Living, living, marks, started_at
from voxint.settings import SECRETS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from voxint.settings import ServiceSettings, Settings

STOP_GRACE_SECONDS = 10.0
"""How long a service may take to end by itself before its processes are killed."""

STOP_CALL_SECONDS = 3.0
"""Longest that one call of `stop` waits for services to end."""

LOG_LIMIT_BYTES = 10 * 1024 * 1024
"""A log longer than this is set aside when its service is started."""

_LOOK_SECONDS = 0.02
_SCAN_SECONDS = 0.5  # new children may have come, and a kill may be due
_LAST_LINE_BYTES = 4096

_log = logging.getLogger(__name__)
_children: dict[int, subprocess.Popen[bytes]] = {}
"""The children of this very process, to be reaped: the kernel tells an exit code to the parent alone."""
_exit_codes: dict[int, int] = {}
_lock = threading.Lock()


class ProcessControl:
    """The configured services as processes of this machine. Never raises; `health` alone uses HTTP."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] | None = None,
        *,
        stop_grace_seconds: float = STOP_GRACE_SECONDS,
        stop_call_seconds: float = STOP_CALL_SECONDS,
    ) -> None:
        """Take the settings, and the environment that the services get but for Voxint's secrets."""
        self._services = settings.services
        self._folder = settings.service_state_dir
        self._environ = {name: value for name, value in (environ or os.environ).items() if not _secret(name)}
        self._grace = stop_grace_seconds
        self._stop_call = stop_call_seconds

    def log_of(self, name: str) -> Path:
        """The file that holds what a service printed."""
        return self._folder / f"{name}.log"

    def inspect(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, from the process table alone."""
        records = self._records()
        try:
            found = self._living(records)
        except OSError as error:
            why = clean(f"cannot read the process table: {error}")
            return tuple(ServiceSeen(name, Condition.UNKNOWN, detail=why) for name in self._services)
        return tuple(self._seen(name, found[name], records[name]) for name in self._services)

    def health(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, and whether it answers; with how its last start ended, where that went wrong."""
        records = self._records()
        answered = with_health(self.inspect(), self._services)
        return tuple(_with_trouble(service, records[service.name]) for service in answered)

    def start(self, only: Collection[str] | None = None) -> dict[str, str]:
        """Start what does not run. A service that ended by itself since the last call is named, and started again.

        Args:
            only: the services meant; all by default.
        """
        records = self._records()
        try:
            found = self._living(records)
        except OSError as error:
            why = clean(f"cannot read the process table: {error}")
            return dict.fromkeys(self._names(only), why)
        failures: dict[str, str] = {}
        for name in self._names(only):
            service = self._services[name]
            record = records[name]
            if not found[name]:
                why_not = self._start(service, record)
            elif record is not None and record.stop_since is not None:
                self._stop(name, found[name], record)
                why_not = "is still stopping"
            else:
                why_not = None
            if why_not is not None:
                failures[name] = why_not
        return failures

    def stop(self, only: Collection[str] | None = None) -> None:
        """Ask all to end, at the same time; kill what has not ended within the grace. Waits a few seconds at most.

        Args:
            only: the services meant; all by default.
        """
        until = time.monotonic() + self._stop_call
        while True:
            records = self._records()
            try:
                found = self._living(records)
            except OSError as error:
                _log.warning("cannot stop the services: cannot read the process table: %s", error)
                return
            for name in self._names(only):
                self._stop(name, found[name], records[name])
            left = [process for name in self._names(only) for process in found[name]]
            if not left or not self._wait(left, until):
                return

    def _names(self, only: Collection[str] | None) -> tuple[str, ...]:
        return tuple(name for name in self._services if only is None or name in only)

    # --- one service -------------------------------------------------------------------------------------------

    def _seen(self, name: str, processes: tuple[Living, ...], record: Record | None) -> ServiceSeen:
        if processes:
            pids = ", ".join(str(process.pid) for process in processes)
            word = "process" if len(processes) == 1 else "processes"
            doing = "is stopping" if record is not None and record.stop_since is not None else "runs"
            return ServiceSeen(name, Condition.RUNNING, detail=f"{doing} as {word} {pids}")
        return ServiceSeen(name, Condition.STOPPED, detail=self._ended(record) or "is not started")

    def _start(self, service: ServiceSettings, before: Record | None) -> str | None:
        name = service.name
        if not service.command:
            return f"there is no command for it: set {name.upper().replace('-', '_')}_COMMAND"
        ended = self._ended(before)
        try:
            log, offset = self._open_log(name)
        except OSError as error:
            return clean(f"cannot write its log {self.log_of(name)}: {error.strerror or error}")
        record = Record(name, log_offset=offset, trouble=ended)
        try:
            kept.write(self._folder, record)
            child = subprocess.Popen(
                service.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environ, **marks(name, self._folder)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = _start_failure(service.command[0], error)
            self._keep(replace(record, trouble=why))
            return why
        finally:
            os.close(log)
        with _lock:
            _children[child.pid] = child
        self._keep(replace(record, pid=child.pid, started=started_at(child.pid)))
        return ended

    def _stop(self, name: str, processes: tuple[Living, ...], record: Record | None) -> None:
        now = time.monotonic()
        if not processes:
            kept.forget(self._folder, name)
            return
        since = record.stop_since if record is not None else None
        if since is None or since > now:  # never asked; or asked before a reboot, where the clock was another
            self._signal(name, processes, signal.SIGTERM)
            self._keep(replace(record or Record(name), stop_since=now))
        elif now - since >= self._grace:
            self._signal(name, processes, signal.SIGKILL)

    def _signal(self, name: str, processes: tuple[Living, ...], number: signal.Signals) -> None:
        for process in processes:
            try:
                process.send(number)
                if number is signal.SIGTERM:
                    process.send(signal.SIGCONT)  # a suspended process cannot hear the other one
            except OSError as error:
                _log.warning("cannot stop %s: %s", name, error)

    def _wait(self, processes: list[Living], until: float) -> bool:
        """Wait until something has ended or a kill is due; False where the call's time is up."""
        pause = threading.Event()
        look_again = min(until, time.monotonic() + _SCAN_SECONDS)
        while True:
            _reap()
            if not all(process.alive for process in processes):
                return True
            if time.monotonic() >= until:
                return False
            if time.monotonic() >= look_again:
                return True
            pause.wait(_LOOK_SECONDS)

    # --- what is kept ------------------------------------------------------------------------------------------

    def _records(self) -> dict[str, Record | None]:
        return {name: kept.read(self._folder, name) for name in self._services}

    def _living(self, records: Mapping[str, Record | None]) -> dict[str, tuple[Living, ...]]:
        try:
            return living(self._folder, records)
        except psutil.Error as error:
            raise OSError(str(error)) from error
        finally:
            _reap()  # afterwards: what was seen to be gone has left its exit code by then

    def _keep(self, record: Record) -> None:
        """Keep what only makes finding and telling easier; the mark in the environment finds the process anyhow."""
        try:
            kept.write(self._folder, record)
        except OSError as error:
            _log.warning("cannot keep the state of %s in %s: %s", record.service, self._folder, error)

    def _open_log(self, name: str) -> tuple[int, int]:
        path = self.log_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_LIMIT_BYTES:
                path.replace(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        return descriptor, os.fstat(descriptor).st_size

    def _ended(self, record: Record | None) -> str | None:
        """How a service that was started, and not asked to stop, came to its end; None where there is no such."""
        if record is None or record.stop_since is not None or record.pid is None:
            return record.trouble if record is not None and record.stop_since is None else None
        text = _exit_words(_exit_codes.get(record.pid))
        line = self._last_line(record)
        return clean(f"{text}: {line}" if line else f"{text}, and printed nothing")

    def _last_line(self, record: Record) -> str:
        try:
            with self.log_of(record.service).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(record.log_offset, size - _LAST_LINE_BYTES))
                lines = file.read(_LAST_LINE_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _secret(name: str) -> bool:
    return name in SECRETS or name.removesuffix("_FILE") in SECRETS


def _with_trouble(service: ServiceSeen, record: Record | None) -> ServiceSeen:
    if service.healthy or record is None or record.trouble is None or record.trouble in service.detail:
        return service
    return replace(service, detail=clean(f"{service.detail}; before that it {record.trouble}"))


def _start_failure(program: str, error: Exception) -> str:
    match error:
        case FileNotFoundError() if error.filename in {program, None}:
            return clean(f"could not be started: command not found: {program}")
        case PermissionError() if error.filename == program:
            return clean(f"could not be started: {program} may not be executed")
        case OSError():
            what = f" ({error.filename})" if error.filename else ""
            return clean(f"could not be started: {error.strerror or error}{what}")
        case _:
            return clean(f"could not be started: {error}")


def _exit_words(code: int | None) -> str:
    if code is None:
        return "ended by itself"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _reap() -> None:
    """Collect the exit codes of our own children that have ended."""
    with _lock:
        for pid, child in list(_children.items()):
            code = child.poll()
            if code is not None:
                _exit_codes[pid] = code
                del _children[pid]
