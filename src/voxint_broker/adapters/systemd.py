"""A systemd unit. It is gone when systemd says inactive or failed, plans nothing with it, and its group has no process."""

from __future__ import annotations

import select
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxint_broker import bounded
from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_broker.config_services import SystemdService

_PROPERTIES = "LoadState,ActiveState,SubState,Result,MainPID,ControlGroup,Job"
_CGROUPS = Path("/sys/fs/cgroup")
_TREES = (".", "unified", "systemd")
"""Where below it systemd keeps its groups: version 2 alone; version 2 beside version 1 (hybrid); version 1 alone."""
_ASK_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
_WATCH_SECONDS = 60.0
_WATCH_AGAIN_SECONDS = 1.0


class Systemd:
    """A unit of systemd, of the machine or of the user."""

    def __init__(self, config: SystemdService, cgroups: Path = _CGROUPS) -> None:
        self.name = config.name
        self.keep_running = bool(config.keep_running)
        self.quick = False
        self._config = config
        self._cgroups = cgroups
        self._group = ""
        self._result = ""

    def reconfigure(self, config: SystemdService) -> None:
        """Go on with other numbers."""
        self._config = config

    def adopt(self, handle: dict[str, Any]) -> None:
        """Remember the control group, which systemd forgets when the unit ends."""
        self._group = str(handle.get("group", ""))

    def handle(self) -> dict[str, Any]:
        """The control group."""
        return {"group": self._group} if self._group else {}

    def watch(self, wake: Callable[[], None]) -> None:
        """The kernel tells when the control group's last process ends. A start is noticed by the next look."""
        threading.Thread(target=self._watch_group, args=(wake,), daemon=True, name=f"group-of-{self.name}").start()

    def look(self) -> Look:
        """What systemd says, and what is left in the control group."""
        ran = bounded.run(self._argv("show", f"--property={_PROPERTIES}", self._config.unit), _ASK_SECONDS)
        if ran.status != 0:
            return Look(Condition.UNKNOWN, ran.problem)
        said = dict(line.split("=", 1) for line in ran.output.splitlines() if "=" in line)
        if said.get("LoadState") != "loaded":
            return Look(
                Condition.UNKNOWN, f"there is no unit {self._config.unit} ({said.get('LoadState') or 'no answer'})"
            )
        self._group = said.get("ControlGroup") or self._group
        active = said.get("ActiveState", "")
        left = self._left()
        if active in {"inactive", "failed"}:
            self._result = said.get("Result", "")
            if left:
                return Look(Condition.RUNNING, f"{active}, but processes of it are left", left)
            if said.get("Job", "0") not in {"", "0"}:  # a start that waits for other units, as after a boot
                return Look(Condition.RUNNING, f"{active}, and systemd has a job for it in its queue")
            return Look(Condition.STOPPED, self.last_words())
        return Look(Condition.RUNNING, f"{active} ({said.get('SubState', '')})", left)

    def sweep(self) -> Look:
        """The control group knows."""
        return self.look()

    def levels(self) -> tuple[StopLevel, ...]:
        """Systemd's own stop, then SIGKILL of all processes."""
        return (StopLevel("stop", self._config.stop_seconds), StopLevel("SIGKILL", self._config.kill_seconds))

    def stop(self, level: StopLevel) -> None:
        """Tell systemd, without waiting for it."""
        if level.name == "stop":
            self._tell("stop", "--no-block", self._config.unit)
        else:
            self._tell("kill", "--signal=SIGKILL", self._config.unit)

    def start(self) -> None:
        """Tell systemd, without waiting for it. A unit that failed before may start again."""
        bounded.run(self._argv("reset-failed", self._config.unit), _ASK_SECONDS)
        self._tell("start", "--no-block", self._config.unit)

    def wait(self, seconds: float) -> None:
        """Wait a little: asking starts a process each time."""
        select.select([], [], [], max(seconds, _LOOK_AGAIN_SECONDS))

    def last_words(self) -> str:
        """How it ended, in systemd's words."""
        return "" if self._result in {"", "success"} else f"systemd says: {self._result}"

    def _tell(self, *words: str) -> None:
        ran = bounded.run(self._argv(*words), _ASK_SECONDS)
        if ran.status != 0:
            raise ServiceError(ran.problem)

    def _argv(self, *words: str) -> list[str]:
        return [*self._config.systemctl, *(["--user"] if self._config.user else []), "--no-pager", *words]

    def _watch_group(self, wake: Callable[[], None]) -> None:
        pause = threading.Event()
        while True:
            file = self._cgroups / self._group.lstrip("/") / "cgroup.events"
            try:
                if not self._group:
                    raise FileNotFoundError(file)
                with file.open("rb") as events:
                    events.read()
                    poll = select.poll()
                    poll.register(events, select.POLLPRI | select.POLLERR)
                    if poll.poll(_WATCH_SECONDS * 1000):
                        wake()
            except OSError:
                pass
            pause.wait(_WATCH_AGAIN_SECONDS)

    def _left(self) -> tuple[int, ...]:
        if not self._group:
            return ()
        folders = [self._cgroups / tree / self._group.lstrip("/") for tree in _TREES]
        found: list[int] = []
        for file in (file for folder in folders for file in (folder / "cgroup.procs", *folder.glob("**/cgroup.procs"))):
            try:
                found += [int(line) for line in file.read_text(encoding="ascii").split() if line != "0"]
            except (OSError, ValueError):
                continue
        return tuple(sorted(set(found)))
