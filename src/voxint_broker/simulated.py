"""A card and a service that are made up: for `voxint-broker simulate`, and the double that tests use.

The service takes the card's memory while it runs, and gives it back some time after its end, as a real one does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxint_broker import clock
from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel
from voxint_broker.memory.reading import Reading, unknown

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Behaviour:
    """How the made-up service behaves; durations in seconds. It may be changed while it runs."""

    start_seconds: float = 0.0
    stop_seconds: float = 0.0
    linger_seconds: float = 0.0
    """How long after its end its memory is still taken."""
    start_fails: str = ""
    ignores: frozenset[str] = frozenset()
    """Stop levels that do nothing."""
    look_fails: str = ""
    memory_fails: str = ""
    memory_taken: str = ""
    """Somebody else who holds the memory."""


@dataclass
class SimulatedService:
    """The service. Also an adapter: what it would do to a process it does to itself."""

    name: str = "simulated"
    keep_running: bool = True
    quick: bool = True
    behaviour: Behaviour = field(default_factory=Behaviour)
    starts: int = 0
    stops: list[str] = field(default_factory=list)
    runs: bool = False
    _changes_at: float | None = None
    _ended_at: float | None = None
    _changed: threading.Event = field(default_factory=threading.Event)

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - it has none
        """It is what it is."""

    def adopt(self, handle: dict[str, Any]) -> None:
        """It is what it is."""

    def handle(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def watch(self, wake: Callable[[], None]) -> None:
        """Nothing tells."""

    def look(self) -> Look:
        """Running until its stop has taken its time."""
        if self.behaviour.look_fails:
            return Look(Condition.UNKNOWN, self.behaviour.look_fails)
        if self.runs and self._changes_at is not None and clock.monotonic() >= self._changes_at:
            self.end()
        return Look(Condition.RUNNING if self.runs else Condition.STOPPED)

    def sweep(self) -> Look:
        """There is no more to see."""
        return self.look()

    def levels(self) -> tuple[StopLevel, ...]:
        """Two ways, as most services have."""
        return (StopLevel("SIGTERM", 0.2 + self.behaviour.stop_seconds), StopLevel("SIGKILL", 0.2))

    def stop(self, level: StopLevel) -> None:
        """Begin to end."""
        self.stops.append(level.name)
        if level.name not in self.behaviour.ignores:
            self._changes_at = clock.monotonic() + self.behaviour.stop_seconds

    def start(self) -> None:
        """Run from now on."""
        if self.behaviour.start_fails:
            raise ServiceError(self.behaviour.start_fails)
        if self._changed.wait(self.behaviour.start_seconds):
            return
        self.starts += 1
        self.runs = True
        self._changes_at = None

    def end(self) -> None:
        """Be gone; the memory lingers."""
        self.runs = False
        self._changes_at = None
        self._ended_at = clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait until its end is due."""
        due = seconds if self._changes_at is None else min(seconds, self._changes_at - clock.monotonic())
        self._changed.wait(max(due, 0.0005))

    def last_words(self) -> str:
        """Nothing."""
        return ""

    def read(self) -> Reading:
        """The card's memory: taken while it runs and a little longer, or by somebody else."""
        if self.behaviour.memory_fails:
            return unknown(self.behaviour.memory_fails)
        if self.behaviour.memory_taken:
            return Reading(enough=False, detail=f"held by {self.behaviour.memory_taken}")
        ended = self._ended_at
        if self.look().condition is Condition.RUNNING:
            return Reading(enough=False, detail="held by the simulated service")
        if ended is not None and clock.monotonic() - ended < self.behaviour.linger_seconds:
            return Reading(enough=False, detail="the memory of the simulated service lingers")
        return Reading(enough=True, detail="free")
