"""A day of turn-taking in memory: the product's plan, decide and lanes, three services, queues, a broker and a clock.

Unlike the walk it has real times, several recordings and words; a Hypothesis state machine decides what happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import phase_rules
from phase_calls import FIELDS

from voxint.gpu_phase import lanes
from voxint.gpu_phase.decide import decide
from voxint.gpu_phase.model import (
    HOLDER,
    Condition,
    Lane,
    LlmSeen,
    Phase,
    PhaseState,
    Request,
    RequestKind,
    ServiceSeen,
    Transition,
    WorkSeen,
)
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.plan import Call, Seen, may, plan
from voxint.gpu_phase.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    Choose = Callable[[str, list[Any]], Any]

GRACE = timedelta(seconds=60)
POLICY = Policy(
    tick=timedelta(seconds=30),
    min_dwell=timedelta(seconds=120),
    max_audio=timedelta(seconds=600),
    acquire_limit=timedelta(seconds=90),
    start_limit=timedelta(seconds=90),
    stop_limit=timedelta(seconds=90),
    release_limit=timedelta(seconds=90),
)


@dataclass
class Item:
    """One piece of work: two stages, then it is done."""

    lane: Lane
    waiting_since: datetime
    state: str = "queued"
    begun: bool = False
    alive: bool = True
    beat_at: datetime | None = None
    stages_left: int = 2
    ended: int = 0


@dataclass
class Day:
    """All that there is. `row` is None until the first tick; steps and calls are kept for the tests."""

    now: datetime = datetime(2026, 5, 4, 8, tzinfo=UTC)
    row: PhaseState | None = None
    request: Request | None = None
    recorded: int = 0
    ended: dict[int, str] = field(default_factory=dict)
    hold_until: datetime | None = None
    services: dict[str, bool] = field(default_factory=lambda: {"whisper": False, "pyannote": False, "titanet": False})
    ours: set[str] = field(default_factory=set)
    holder: tuple[str, str] | None = None
    leases: int = 0
    items: list[Item] = field(default_factory=list)
    policy: Policy = POLICY
    steps: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    # --- the work ---

    def claim(self, lane: Lane) -> None:
        """One short transaction: look at the stored phase, mark the work."""
        opened = lanes.is_open(lane, self.row, self.now, self.policy)
        going_on = lanes.goes_on(lane, self.row, self.now)
        for item in self.items:
            fresh = item.begun and self.now - item.waiting_since < GRACE
            if item.lane is lane and item.state == "queued" and (opened or (going_on and fresh)):
                item.state, item.begun, item.alive, item.beat_at = "running", True, True, self.now
                return

    def in_progress(self, lane: Lane) -> bool:
        return any(
            item.lane is lane
            and (
                item.state == "running"
                or (item.state == "queued" and item.begun and self.now - item.waiting_since < GRACE)
            )
            for item in self.items
        )

    def finish(self, item: Item) -> None:
        item.stages_left -= 1
        if item.stages_left:
            item.state, item.waiting_since = "queued", self.now
        else:
            item.state = "done"
            item.ended += 1

    def reap(self) -> None:
        for item in self.items:
            if item.state == "running" and item.alive:
                item.beat_at = self.now
            elif item.state == "running" and item.beat_at is not None and self.now - item.beat_at > GRACE:
                item.state, item.waiting_since = "queued", self.now

    def work(self) -> WorkSeen:
        queued = any(item.lane is Lane.GPU and item.state == "queued" for item in self.items)
        return WorkSeen(queued, self.in_progress(Lane.GPU), self.in_progress(Lane.POST))

    # --- operators ---

    def ask(self, kind: RequestKind) -> None:
        if self.request is not None:
            self.ended[self.request.id] = "superseded"
        self.recorded += 1
        self.request = Request(self.recorded, kind, self.row.phase if self.row else None, self.now, "ada")

    # --- a tick ---

    def tick(self, choose: Choose, meanwhile: Callable[[], None] | None = None, crash_after: int | None = None) -> None:
        """A tick with chosen answers. It may break off after a call; something may happen before its save."""
        if self.row is None:
            self.row = PhaseState(Phase.LLM, self.now)
            return
        before, request = self.row, self.request
        seen = Seen(self.now, self.work(), request=request, hold_until=self.hold_until)
        made_calls = 0
        for call in plan(before, request):
            if not may(call, seen):
                continue
            self.calls.append(call)
            answer = self.perform(call, before, seen, choose)
            if call in FIELDS:
                seen = replace(seen, **{FIELDS[call]: answer})
            made_calls += 1
            if crash_after is not None and made_calls > crash_after:
                return
        made = decide(before, seen, self.policy)
        assert not list(phase_rules.broken(phase_rules.Tick(before, seen, self.policy, made)))
        if meanwhile is not None:
            meanwhile()
        self.save(made, request)

    def save(self, made: Transition, request: Request | None) -> None:
        if made.drained is not None and self.in_progress(made.drained):
            return
        self.row = made.state
        if made.moved:
            self.steps.append(f"{made.before.phase} -> {made.state.phase}: {made.cause}")
        if made.cut is not None:
            for item in self.items:
                if item.lane is Lane.GPU and item.state in {"running", "queued"}:
                    item.state, item.begun, item.waiting_since = "queued", False, self.now
        if request is not None and made.request is not None:
            self.ended[request.id] = made.request
            if self.request is request:
                self.request = None
        if made.state.phase is not Phase.LLM:
            self.hold_until = None

    def perform(self, call: Call, row: PhaseState, seen: Seen, choose: Choose) -> Any:
        up = [name for name, runs in self.services.items() if runs]
        match call:
            case Call.INSPECT | Call.HEALTH:
                return self.looked(call, choose)
            case Call.START:
                renewed = seen.renewal
                assert isinstance(renewed, Granted)
                assert self.holder == (HOLDER, renewed.lease_id), "a start without a lease of ours"
                for name in self.services:
                    if choose(f"start {name}", [True, False]):
                        self.services[name] = True
                        self.ours.add(name)
            case Call.STOP:
                assert not any(i.lane is Lane.GPU and i.state == "running" for i in self.items), "stopped under work"
                for name in up:
                    if choose(f"stop {name}", [True, False]):
                        self.services[name] = False
                        self.ours.discard(name)
            case Call.PROBE_LLM:
                return LlmSeen(ready=choose("probe", [True, False]))
            case Call.STATUS | Call.ACQUIRE | Call.RENEW | Call.RELEASE:
                return self.ask_broker(call, row, up, choose)
        return None

    def looked(self, call: Call, choose: Choose) -> tuple[ServiceSeen, ...]:
        blind = call is Call.INSPECT and choose("unknown", [False, True])
        answers = call is Call.HEALTH and choose("healthy", [True, False])
        seen = {True: Condition.UNKNOWN if blind else Condition.RUNNING}
        seen[False] = Condition.UNKNOWN if blind else Condition.STOPPED
        return tuple(ServiceSeen(n, seen[runs], healthy=runs and answers) for n, runs in self.services.items())

    def ask_broker(self, call: Call, row: PhaseState, up: list[str], choose: Choose) -> Any:
        if call is Call.ACQUIRE:
            assert not up, "asked for the GPU while a model service runs"
            assert not any(i.lane is Lane.POST and i.state == "running" for i in self.items), "taken under work"
        if call is Call.RELEASE:
            assert not up, "handed back while a model service runs"
        fate = choose(call.value, ["right", "no answer", "answer lost", "pending"])
        if fate == "no answer":
            return Failed("no answer")
        answer = self.right_answer(call, row, pending=fate == "pending")
        return Failed("answer lost") if fate == "answer lost" else answer

    def right_answer(self, call: Call, row: PhaseState, *, pending: bool) -> Any:
        end = self.now + timedelta(seconds=100)
        match call:
            case Call.STATUS:
                return Free() if self.holder is None else Held(*self.holder, end)
            case Call.ACQUIRE if self.holder is not None and self.holder[0] != HOLDER:
                return Refused(self.holder[0], timedelta(seconds=40))
            case Call.ACQUIRE | Call.RELEASE if pending:
                return Pending()
            case Call.ACQUIRE:
                if self.holder is None:
                    self.leases += 1
                    self.holder = (HOLDER, f"lease-{self.leases}")
                return Granted(self.holder[1], end)
            case Call.RENEW:
                return Granted(row.lease_id or "", end) if self.holder == (HOLDER, row.lease_id) else Lost("unknown")
            case _:
                if self.holder == (HOLDER, row.lease_id):
                    self.holder = None
                return Done()

    # --- what must always hold ---

    def look(self) -> None:
        opened = {lane: lanes.is_open(lane, self.row, self.now, self.policy) for lane in Lane}
        assert not all(opened.values()), "both lanes are open"
        phase = self.row.phase if self.row else None
        if phase in {None, Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING, Phase.RELEASING}:
            assert not self.ours, f"{self.ours} run in {phase}"
        running = {item.lane for item in self.items if item.state == "running"}
        assert Lane.GPU not in running or phase in {Phase.AUDIO, Phase.DRAINING}
        assert Lane.POST not in running or phase not in phase_rules.WITH_LEASE | {Phase.ACQUIRING}
        assert all(item.ended == (item.state == "done") for item in self.items), "done twice, or lost"
        assert self.recorded == len(self.ended) + (self.request is not None), "a request is lost"

    def well(self, ticks: int) -> int:
        """Ticks of a world that is well until all is done, a lane is open and nothing is asked."""
        if self.holder is not None and self.holder[0] != HOLDER:
            self.holder = None
        for number in range(ticks):
            for item in [one for one in self.items if one.state == "running"]:
                if item.alive:
                    self.finish(item)
            self.tick(lambda _what, answers: answers[0])
            for lane in Lane:
                self.claim(lane)
            self.look()
            self.now += self.policy.tick
            self.reap()
            done = all(item.state == "done" for item in self.items) and self.request is None
            if done and any(lanes.is_open(lane, self.row, self.now, self.policy) for lane in Lane):
                return number
        raise AssertionError(f"not well after {ticks} ticks: {self.row}")
