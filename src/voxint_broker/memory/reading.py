"""One reading of the GPU's memory, and the kinds of gauge that take it."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from voxint_broker.config import LockMemory, NoMemory

if TYPE_CHECKING:
    from voxint_broker.config import AnyMemory


@dataclass(frozen=True, slots=True)
class Reading:
    """What a look at the memory said. `enough` is None where it could not be told: that is neither free nor taken."""

    enough: bool | None
    detail: str = ""
    free_mib: int | None = None


class Gauge(Protocol):
    """Something that can say whether the GPU's memory is free."""

    def read(self) -> Reading:
        """Look once. Never raises: what goes wrong is an unknown reading."""


class NoGauge:
    """Nothing is read: the processes being gone is the whole proof."""

    def read(self) -> Reading:
        """Always enough."""
        return Reading(enough=True, detail="not read")


class LockGauge:
    """A lock file that everybody keeps who has a model on the GPU. It is taken for a moment to see that it is free."""

    def __init__(self, config: LockMemory) -> None:
        self._path = config.path

    def read(self) -> Reading:
        """Try the lock."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            return Reading(enough=None, detail=f"cannot open {self._path}: {error.strerror}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Reading(enough=False, detail=f"the lock {self._path} is taken")
        except OSError as error:
            return Reading(enough=None, detail=f"cannot lock {self._path}: {error.strerror}")
        finally:
            os.close(fd)
        return Reading(enough=True, detail=f"the lock {self._path} is free")


def gauge_of(config: AnyMemory) -> Gauge:
    """The gauge that a configuration asks for."""
    match config:
        case NoMemory():
            return NoGauge()
        case LockMemory():
            return LockGauge(config)
        case _:
            assert_never(config)
