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


class _Slot(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.done = threading.Event()
        self.value: T | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.value = self._call()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who gives it a name
            self.error = error
        finally:
            self.done.set()


def at_once(calls: Mapping[str, Callable[[], T]], limit_seconds: float) -> dict[str, T | Exception]:
    """Run every call in a thread of its own.

    Args:
        calls: what to call, by name.
        limit_seconds: how long to wait for all of them together.

    Returns:
        By name: what the call gave, the exception that it raised, or TimeoutError where it is still at work.
    """
    slots: dict[str, _Slot[T]] = {name: _Slot(call) for name, call in calls.items()}
    for name, slot in slots.items():
        threading.Thread(target=slot.run, name=f"voxint {name}", daemon=True).start()
    until = time.monotonic() + limit_seconds
    results: dict[str, T | Exception] = {}
    for name, slot in slots.items():
        if not slot.done.wait(max(0.0, until - time.monotonic())):
            results[name] = TimeoutError(f"no answer within {limit_seconds:g} s")
        elif slot.error is not None:
            results[name] = slot.error
        else:
            results[name] = slot.value  # type: ignore[assignment]  # it ended without an error
    return results
