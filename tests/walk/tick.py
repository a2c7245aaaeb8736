"""One tick in the world of the walk: the product's own plan and decide, against every answer that the world may give.

What a call brings is told by a letter or two; the same words always make the same values, so that each decision is
made once and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import phase_rules

from voxint.gpu_phase import decide as machine
from voxint.gpu_phase import plan as planning
from voxint.gpu_phase.model import (
    HOLDER,
    Condition,
    Lane,
    LlmSeen,
    RequestOutcome,
    ServiceSeen,
    WorkSeen,
)
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.plan import Call, Seen
from walk import gate
from walk.world import (
    BETWEEN,
    DEAD,
    FREE,
    NO_REQUEST,
    NOW,
    OTHERS,
    OURS,
    POLICIES,
    QUEUED,
    RUNNING,
    RUNS,
    STALE,
    STOPPED,
    STRAY,
    UNIT,
    Row,
    request_of,
    row_of,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


NEW = "N"  # the id of a lease that the row does not know; the row's own is "A"
_CONDITION = {
    "S": Condition.STOPPED,
    "R": Condition.RUNNING,
    "H": Condition.RUNNING,
    "B": Condition.RUNNING,
    "U": Condition.UNKNOWN,
}
_ANSWERS = {
    "": None,
    "failed": Failed("no answer"),
    "pending": Pending(),
    "granted A": Granted("A", NOW + UNIT),
    "granted N": Granted(NEW, NOW + UNIT),
    "granted A for ever": Granted("A", None),
    "granted N for ever": Granted(NEW, None),
    "refused": Refused(None),
    "refused for another": Refused("other", 2 * UNIT),
    "refused naming us": Refused(HOLDER),
    "lost": Lost("no such lease"),
    "done": Done(),
    "free": Free(),
    "held by another": Held("other", "Z"),
    "held A": Held(HOLDER, "A", NOW + UNIT),
    "held N": Held(HOLDER, NEW, NOW + UNIT),
    "held without an id": Held(HOLDER, None),
    "ready": LlmSeen(ready=True),
    "not ready": LlmSeen(ready=False),
}


class Saw(NamedTuple):
    """What a tick saw, in words. `services` has one letter a service: stopped, runs, healthy, barred for its device, unknown."""

    services: str = ""
    llm: str = ""
    acquire: str = ""
    renewal: str = ""
    release: str = ""
    status: str = ""


class Made(NamedTuple):
    """What came of it: the next row and what is saved beside it, and the rules that it broke."""

    row: Row
    lease_id: str | None
    acted: RequestOutcome | None
    cut: bool
    drained: Lane | None
    moved: bool
    broken: tuple[str, ...]


class Outside(NamedTuple):
    """The part of the world that calls can change."""

    broker: int
    one: int
    two: int


class Decisions:
    """Remembers every decision, plan and lane of one walk. A broken guard needs a fresh one."""

    def __init__(self) -> None:
        self.state = lru_cache(maxsize=None)(state_of)
        self.plan = lru_cache(maxsize=None)(self._plan)
        self.may = lru_cache(maxsize=None)(self._may)
        self.made = lru_cache(maxsize=None)(self._made)

    def _plan(self, row: Row, request: int) -> tuple[Call, ...]:
        return planning.plan(self.state(row), request_of(request))

    def _may(self, call: Call, saw: Saw) -> bool:
        return planning.may(call, self.seen(saw, NO_REQUEST, 0, WorkSeen()))

    def seen(self, saw: Saw, request: int, hold: int, work: WorkSeen) -> Seen:
        services = None
        if saw.services:
            services = tuple(
                ServiceSeen(f"s{number}", _CONDITION[letter], healthy=letter in "HB", barred=letter == "B")
                for number, letter in enumerate(saw.services, 1)
            )
        return Seen(
            NOW,
            work,
            request=request_of(request),
            hold_until=NOW + hold * UNIT if hold else None,
            services=services,
            llm=_ANSWERS[saw.llm],
            acquire=_ANSWERS[saw.acquire],
            renewal=_ANSWERS[saw.renewal],
            release=_ANSWERS[saw.release],
            status=_ANSWERS[saw.status],
        )

    def _made(self, row: Row, kept: tuple[int, int, int], gpu: int, post: int, saw: Saw) -> Made:
        request, hold, hours = kept
        policy = POLICIES[hours]
        before = self.state(row)
        work = WorkSeen(gpu in {QUEUED, BETWEEN, STALE}, gate.in_progress(gpu), gate.in_progress(post))
        seen = self.seen(saw, request, hold, work)
        transition = machine.decide(before, seen, policy)
        broken = tuple(phase_rules.broken(phase_rules.Tick(before, seen, policy, transition)))
        after = transition.state
        return Made(
            row_of(after),
            after.lease_id,
            transition.request,
            transition.cut is not None,
            transition.drained,
            transition.moved,
            broken,
        )


def answers(call: Call, row: Row, world: Outside) -> Iterator[tuple[str, Outside]]:
    """Everything that a call may bring in this world, and what the world is like then."""
    match call:
        case Call.PROBE_LLM:
            yield from (("ready", world), ("not ready", world))
        case Call.INSPECT:
            one, two = "SRR"[world.one], "SRR"[world.two]
            yield from ((letters, world) for letters in dict.fromkeys((one + two, one + "U", "U" + two, "UU")))
        case Call.HEALTH:
            truth = "SRR"[world.one] + "SRR"[world.two]
            healthy = truth.replace("R", "H")
            barred = truth.replace("R", "B", 1)
            yield from ((letters, world) for letters in dict.fromkeys((healthy, truth, "UU", barred)))
            if world.one == RUNS:  # the look at the devices, which follows, has stopped it to be restarted
                yield truth, world._replace(one=STOPPED)
        case Call.PLACEMENT:
            yield "", world  # what it may bring is among the answers of HEALTH
        case Call.START:
            for one, two in dict.fromkeys(((1, 1), (1, world.two), (world.one, 1), (world.one, world.two))):
                yield "", Outside(world.broker, one, two)
        case Call.STOP:
            for one, two in dict.fromkeys(((0, 0), (0, world.two), (world.one, 0), (world.one, world.two))):
                yield "", Outside(world.broker, one, two)
        case _:
            yield from _broker_answers(call, row, world)


def _broker_answers(call: Call, row: Row, world: Outside) -> Iterator[tuple[str, Outside]]:
    ours, free = world.broker == OURS, world._replace(broker=FREE)
    stray = world._replace(broker=STRAY)
    yield "failed", world
    match call:
        case Call.STATUS:
            if world.broker in {OURS, STRAY}:
                yield "held without an id", world
            yield {FREE: "free", OURS: "held A", STRAY: "held N", OTHERS: "held by another"}[world.broker], world
        case Call.ACQUIRE:
            yield "pending", world
            if world.broker == OTHERS:
                yield "refused for another", world
                return
            yield "granted N", stray
            yield "failed", stray
            if world.broker == FREE:
                yield "granted N for ever", stray
                yield "refused", world
            else:
                yield "refused naming us", world
        case Call.RENEW:
            if ours:
                yield "granted A", world
                yield "granted N", stray
            else:
                yield "lost", world
        case Call.RELEASE:
            yield "pending", world
            yield "done", free if ours else world
            if ours:
                yield "failed", free


def wrong_call(call: Call, row: Row, saw: Saw, world: Outside, gpu: int, post: int) -> str | None:
    """What must never be asked of the world, looked at from outside the machine."""
    held = world.broker == OURS or (world.broker == STRAY and saw.renewal.startswith("granted"))
    up = (world.one, world.two) != (STOPPED, STOPPED)
    match call:
        case Call.START if not held:
            return "a start without a lease of ours"
        case Call.ACQUIRE if up:
            return "the broker is asked for the GPU while a model service runs"
        case Call.ACQUIRE if post in {RUNNING, DEAD}:
            return "the broker is asked to stop the language model under running work"
        case Call.RELEASE if up:
            return "the GPU is handed back while a model service runs"
        case Call.RELEASE if gpu in {RUNNING, DEAD}:
            return "the GPU is handed back under running work"
        case Call.STOP if gpu in {RUNNING, DEAD}:
            return "the services are stopped under running work"
        case Call.RENEW if row.lost:
            return "a dead lease is renewed"
    return None


def labelled(broker: int, row: Row, lease_id: str | None) -> int:
    """The broker's lease, told by whether the saved row knows it."""
    if broker in {OURS, STRAY}:
        return OURS if row.lease and lease_id == ("A" if broker == OURS else NEW) else STRAY
    return broker


def right_answer(call: Call, world: Outside) -> tuple[str, Outside]:  # noqa: C901 - one line a call
    """The answer of a world that is well."""
    letters = "SRR"[world.one] + "SRR"[world.two]
    match call:
        case Call.PROBE_LLM:
            return "ready", world
        case Call.INSPECT:
            return letters, world
        case Call.HEALTH:
            return letters.replace("R", "H"), world
        case Call.PLACEMENT:
            return "", world
        case Call.START:
            return "", world._replace(one=RUNS, two=RUNS)
        case Call.STOP:
            return "", world._replace(one=STOPPED, two=STOPPED)
        case Call.STATUS:
            return {FREE: "free", OURS: "held A", STRAY: "held N", OTHERS: "held by another"}[world.broker], world
        case Call.ACQUIRE:
            return "granted N", world._replace(broker=STRAY)
        case Call.RENEW:
            return ("granted A" if world.broker == OURS else "lost"), world
        case Call.RELEASE:
            return "done", world._replace(broker=FREE) if world.broker == OURS else world
