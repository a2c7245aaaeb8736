"""A service that commands stop and start, and that a command can tell whether it runs."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

from voxint_broker import bounded
from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_broker.config_services import CommandService

_STOPPED_STATUS = frozenset({1, 3})
"""1 is a plain no; 3 is what `systemctl is-active` and init scripts say of a service that does not run."""

_LOOK_AGAIN_SECONDS = 0.1


class Command:
    """A service behind commands of the operator."""

    def __init__(self, config: CommandService) -> None:
        self.name = config.name
        self.keep_running = bool(config.keep_running)
        self.quick = False
        self._config = config

    def reconfigure(self, config: CommandService) -> None:
        """Go on with other numbers."""
        self._config = config

    def adopt(self, handle: dict[str, Any]) -> None:
        """Nothing to find: the commands know."""

    def handle(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def watch(self, wake: Callable[[], None]) -> None:
        """Nothing tells."""

    def look(self) -> Look:
        """What the running command says."""
        ran = bounded.run(self._config.running, self._config.look_seconds)
        if ran.status == 0:
            return Look(Condition.RUNNING, "its command says that it runs")
        if ran.status in _STOPPED_STATUS:
            return Look(Condition.STOPPED)
        return Look(Condition.UNKNOWN, ran.problem)

    def sweep(self) -> Look:
        """The commands know."""
        return self.look()

    def levels(self) -> tuple[StopLevel, ...]:
        """Stop, then kill where there is one."""
        stop = StopLevel("stop", self._config.stop_seconds)
        return (stop, StopLevel("kill", self._config.kill_seconds)) if self._config.kill else (stop,)

    def stop(self, level: StopLevel) -> None:
        """Run the level's command to its end."""
        argv = self._config.kill if level.name == "kill" and self._config.kill else self._config.stop
        ran = bounded.run(argv, level.seconds)
        if ran.status != 0:
            raise ServiceError(ran.problem)

    def start(self) -> None:
        """Run the start command to its end."""
        ran = bounded.run(self._config.start, self._config.start_seconds)
        if ran.status != 0:
            raise ServiceError(ran.problem)

    def wait(self, seconds: float) -> None:
        """Wait a little: asking starts a process each time."""
        select.select([], [], [], max(seconds, _LOOK_AGAIN_SECONDS))

    def last_words(self) -> str:
        """Unknown."""
        return ""
