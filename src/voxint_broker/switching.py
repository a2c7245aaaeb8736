"""The two ways of a switch: clear the GPU and prove it, and bring the services back until they really answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from voxint_broker import clock
from voxint_broker.adapters.protocol import Condition, ServiceError, StopLevel
from voxint_broker.adapters.sleeper import Sleeper
from voxint_broker.drain import busy
from voxint_broker.ready import why_not_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint_broker.adapters.protocol import Adapter
    from voxint_broker.config_memory import Memory
    from voxint_broker.config_services import Drain, Ready
    from voxint_broker.memory.reading import Gauge, Reading

POLL_SECONDS = 0.025
"""How often it is looked during a switch, once it has taken a while."""

_SHORTEST_POLL_SECONDS = 0.001
_POLL_SHARE = 0.05
"""A wait is looked at after each further twentieth of its time: it is noticed at most so much too late."""

_TELL_AGAIN_SECONDS = 2.0
"""A service that could not be told to stop is told again after so long."""

_OFF_THE_GPU = frozenset({Condition.STOPPED, Condition.ASLEEP})


class StepFailedError(Exception):
    """A step came to nothing within its limits. The text says which and why."""


class SupersededError(Exception):
    """The broker's state changed under the work, so it is given up."""


class Watch(Protocol):
    """How the work meets the engine."""

    def check(self) -> None:
        """Raise SupersededError when this work is no longer wanted."""

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the engine wants attention."""

    def say(self, step: str, detail: str = "") -> None:
        """What is being done, for the status."""

    def started(self) -> None:
        """A service was started: what is needed to find it again goes to the journal."""

    def point(self, name: str) -> None:
        """A place between two steps, where tests kill the broker."""


@dataclass(frozen=True, slots=True)
class Part:
    """One service: how it is handled, and when it counts as back."""

    adapter: Adapter
    ready: Ready | None
    drain: Drain | None = None


class Switch:
    """The work of a switch. Every method ends by itself, raises StepFailedError, or is superseded."""

    def __init__(self, parts: Sequence[Part], gauge: Gauge, rules: Memory, watch: Watch) -> None:
        self._parts = parts
        self._gauge = gauge
        self._rules = rules
        self._watch = watch
        self.last: Reading | None = None
        """The last reading of the memory; None once a service was started after it."""

    def read(self) -> Reading:
        """Read the memory once."""
        self.last = self._gauge.read()
        return self.last

    def clear(self) -> None:
        """Stop every service and prove that the memory is free."""
        self._can_read()
        for part in reversed(self._parts):
            if part.drain is not None and part.adapter.look().condition is Condition.RUNNING:
                self._wait_for_work(part, part.drain)
            self.stop(part.adapter)
        self._sleep_soundly()
        self.prove()

    def _wait_for_work(self, part: Part, drain: Drain) -> None:
        """Let the work in flight end, within its limit. What cannot be told is waited for as well."""
        begun = clock.monotonic()
        while True:
            at_work, detail = busy(drain)
            passed = clock.monotonic() - begun
            if at_work is False or passed >= drain.limit_seconds:
                return
            self._watch.check()
            self._watch.say("wait for work in flight", f"{part.adapter.name}: {detail}")
            self._watch.pause(min(POLL_SECONDS * 4, drain.limit_seconds - passed))
            if part.adapter.look().condition is not Condition.RUNNING:
                return

    def _sleep_soundly(self) -> None:
        """A server that sleeps must pass the same proof as one that is gone; else it is stopped altogether."""
        for part in reversed(self._parts):
            adapter = part.adapter
            if not isinstance(adapter, Sleeper) or adapter.owner is None:
                continue
            if adapter.look().condition is Condition.ASLEEP:
                detail = self._free_within(adapter.asleep_seconds)
                if detail is not None:
                    self._watch.say("stop", f"{adapter.name} sleeps, but the memory is not free: {detail}")
                    self.stop(adapter.owner)

    def _can_read(self) -> None:
        """Nothing is stopped while the memory cannot be read: the proof could not be given afterwards."""
        while True:
            reading = self.read()
            if reading.enough is not None:
                return
            self._watch.check()
            self._watch.say("read memory", f"unknown, so nothing is stopped: {reading.detail}")
            self._watch.pause(1.0)

    def stop(self, adapter: Adapter) -> None:
        """Stop one service, politely first."""
        for level in adapter.levels():
            if self._stopped(adapter, level):
                return
        look = adapter.look()
        raise StepFailedError(f"{adapter.name} is stuck: it is still there after every way to stop it ({look.detail})")

    def _stopped(self, adapter: Adapter, level: StopLevel) -> bool:
        look = adapter.look()
        if look.condition in _OFF_THE_GPU:
            return True
        self._watch.check()
        self._watch.say("stop", f"{adapter.name}: {level.name}")
        self._watch.point("before stop")
        problem = _told_to_stop(adapter, level)
        self._watch.point("after stop")
        begun = told = clock.monotonic()
        while True:
            look = adapter.look()
            if look.condition in _OFF_THE_GPU:
                return True
            passed = clock.monotonic() - begun
            if passed >= level.seconds:
                return False
            self._watch.check()
            self._watch.say(
                "stop", ": ".join(each for each in (adapter.name, level.name, problem, look.detail) if each)
            )
            adapter.wait(min(_poll(passed), level.seconds - passed))
            if problem and clock.monotonic() - told >= _TELL_AGAIN_SECONDS:
                problem, told = _told_to_stop(adapter, level), clock.monotonic()

    def prove(self) -> None:
        """Wait until the readings say free as often in a row as wanted, and nothing of a service is left."""
        detail = self._free_within(self._rules.limit_seconds)
        if detail is not None:
            raise StepFailedError(f"the GPU's memory is not free after {self._rules.limit_seconds:g} s: {detail}")

    def is_free(self) -> tuple[bool, str]:
        """Whether the memory is free now, and what the last reading said; for a look now and then."""
        detail = self._free_within(0)
        return detail is None, detail or ""

    def _free_within(self, seconds: float) -> str | None:
        begun = clock.monotonic()
        in_a_row, swept = 0, False
        while True:
            reading = self.read()
            in_a_row = in_a_row + 1 if reading.enough else 0
            read_at = clock.monotonic()
            if in_a_row and not swept:
                swept = True
                if self._sweep():
                    begun, in_a_row, swept = clock.monotonic(), 0, False
                    continue
            if in_a_row >= self._rules.readings:
                return None
            passed = clock.monotonic() - begun
            if passed >= seconds and not in_a_row:
                return reading.detail if reading.enough is not None else f"unknown: {reading.detail}"
            self._watch.check()
            self._watch.say("prove", reading.detail)
            if in_a_row:  # the sweep between two readings is a part of their interval
                self._watch.pause(max(self._rules.interval_seconds - (clock.monotonic() - read_at), 0))
            else:
                self._watch.pause(_poll(passed))

    def _sweep(self) -> bool:
        """Stop what is left of services that count as gone; whether there was anything."""
        left = [part.adapter for part in self._parts if part.adapter.sweep().leftover]
        for adapter in left:
            self.stop(adapter)
        return bool(left)

    def restore(self, *, must_be_free: bool) -> None:
        """Start what does not run, and wait until everything answers.

        Args:
            must_be_free: whether somebody else may have used the GPU. Then nothing is started without the proof; else
                it is only waited for, as a service's own memory may linger after its exit.
        """
        proven = False
        for part in self._parts:
            look = part.adapter.look()
            while look.condition is Condition.UNKNOWN:
                self._watch.check()
                self._watch.say("look", f"{part.adapter.name}: {look.detail}")
                self._watch.pause(1.0)
                look = part.adapter.look()
            if look.leftover:
                self.stop(part.adapter)
                look = part.adapter.look()
            if look.condition in _OFF_THE_GPU:
                if not proven:
                    self._before_start(must_be_free=must_be_free)
                    proven = True
                self._start(part)
            self._until_ready(part)

    def _before_start(self, *, must_be_free: bool) -> None:
        try:
            self.prove()
        except StepFailedError:
            if must_be_free:
                raise

    def _start(self, part: Part) -> None:
        self._watch.check()
        self._watch.say("start", part.adapter.name)
        self._watch.point("before start")
        self.last = None
        try:
            part.adapter.start()
        except ServiceError as error:
            raise StepFailedError(f"{part.adapter.name} cannot be started: {error}") from error
        self._watch.point("after start")
        self._watch.started()

    def _until_ready(self, part: Part) -> None:
        if part.ready is None:
            return
        begun = clock.monotonic()
        while True:
            missing = why_not_ready(part.ready)
            look = part.adapter.look()
            if look.condition is Condition.STOPPED:
                words = f" ({look.detail})" if look.detail else ""
                raise StepFailedError(f"{part.adapter.name} ended before it was ready{words}")
            if missing is None:
                return
            passed = clock.monotonic() - begun
            if passed >= part.ready.limit_seconds:
                raise StepFailedError(
                    f"{part.adapter.name} was not ready within {part.ready.limit_seconds:g} s: {missing}"
                )
            self._watch.check()
            self._watch.say("wait for an answer", missing)
            self._watch.pause(_poll(passed))


def _told_to_stop(adapter: Adapter, level: StopLevel) -> str:
    """Tell a service to stop; why that could not be done, or nothing."""
    try:
        adapter.stop(level)
    except ServiceError as error:
        return str(error)
    return ""


def _poll(passed: float) -> float:
    return min(max(_POLL_SHARE * passed, _SHORTEST_POLL_SECONDS), POLL_SECONDS)
