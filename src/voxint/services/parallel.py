"""Several blocking calls at the same time, bounded by one limit for all of them.

A call that outlives the limit goes on in a daemon thread of its own, so that it keeps neither the tick nor the
process's end waiting; the libraries below bound each wait on a socket, so that such a thread ends.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class StillAtWorkError(TimeoutError):
    """A call has not ended within the limit; it goes on."""


class _Running(Generic[T]):
    def __init__(self, name: str, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: T | Exception
        self._thread = threading.Thread(target=self._run, name=f"voxint {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who gives it a name
            self._result = error
        finally:
            self._done.set()

    @property
    def at_work(self) -> bool:
        """Whether it goes on. A thread does not survive a fork: there it has neither ended nor goes on."""
        return self._thread.is_alive() and not self._done.is_set()

    def result(self, until: float, limit_seconds: float) -> T | Exception:
        if self._done.wait(max(0.0, until - time.monotonic())):
            return self._result
        return StillAtWorkError(f"no answer within {limit_seconds:g} s")


class Calls(Generic[T]):
    """Calls by name, of which each is at work only once: asked for again meanwhile, it is waited for instead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Running[T]] = {}

    def at_once(self, calls: Mapping[str, Callable[[], T]], limit_seconds: float) -> dict[str, T | Exception]:
        """Run every call in a thread of its own, unless it is still at work from before.

        Args:
            calls: what to call, by name.
            limit_seconds: how long to wait for all of them together.

        Returns:
            By name: what the call gave, the exception that it raised, or StillAtWorkError.
        """
        until = time.monotonic() + limit_seconds
        with self._lock:
            self._running = {name: running for name, running in self._running.items() if running.at_work}
            mine = {name: self._running.get(name) or _Running(name, call) for name, call in calls.items()}
            self._running.update(mine)
        return {name: running.result(until, limit_seconds) for name, running in mine.items()}


def at_once(calls: Mapping[str, Callable[[], T]], limit_seconds: float) -> dict[str, T | Exception]:
    """Run every call in a thread of its own, as `Calls.at_once`, with no memory of earlier ones."""
    return Calls[T]().at_once(calls, limit_seconds)
