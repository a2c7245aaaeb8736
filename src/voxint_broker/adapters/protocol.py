"""What the engine needs of a service, whatever kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Condition(StrEnum):
    """Whether a service is there. Unknown is neither: nothing is started or granted on it."""

    RUNNING = "running"
    ASLEEP = "asleep"  # the server is there, and says that it has nothing in the GPU's memory
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a service: its condition, the reason or detail, and the processes that it consists of."""

    condition: Condition
    detail: str = ""
    pids: tuple[int, ...] = ()
    leftover: bool = False
    """Running, but only parts of it: it cannot serve any more, and has to be stopped before it is started."""


@dataclass(frozen=True, slots=True)
class StopLevel:
    """One way to stop a service, and how many seconds it has before the next, harder one."""

    name: str
    seconds: float


class ServiceError(Exception):
    """A service could not be started or told to stop. The text says why."""


class Adapter(Protocol):
    """One service. Calls are made from one thread at a time, except `look`. Its numbers are read at each use."""

    name: str
    keep_running: bool
    """Whether the broker is the one that starts it again when it ends by itself."""
    quick: bool
    """Whether a look costs next to nothing, so that every status may take one."""

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - the configuration of its own kind
        """Go on with the numbers of another configuration of the same service."""

    def adopt(self, handle: dict[str, Any]) -> None:
        """Find what runs, with what the journal has of it."""

    def handle(self) -> dict[str, Any]:
        """What the journal should keep to find it again."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Call this from now on, from another thread, when something about it may have changed, where that is told."""

    def look(self) -> Look:
        """Its condition now. Never raises."""

    def sweep(self) -> Look:
        """A look that spares no pains: nothing of it is granted over, or started beside. Never raises."""

    def levels(self) -> tuple[StopLevel, ...]:
        """The ways to stop it, the polite one first."""

    def stop(self, level: StopLevel) -> None:
        """Begin to stop it in this way; `look` tells what came of it. Raises ServiceError."""

    def start(self) -> None:
        """Start it. Raises ServiceError."""

    def wait(self, seconds: float) -> None:
        """Wait until something about it changed, as far as that can be noticed, or the time is over."""

    def last_words(self) -> str:
        """What it said before it ended, or how it ended; empty where that is not known."""
