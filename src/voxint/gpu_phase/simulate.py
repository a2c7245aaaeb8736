"""PURE: days of turn-taking on a simulated clock: the product's own plan, decide, lanes and wake-ups, in a world that is well.

It answers what other settings would mean: how long recordings wait, how long the language model is away, and how long nobody
uses the GPU. Services take the times that they are given; nothing fails.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase import lanes
from voxint.gpu_phase.decide import decide
from voxint.gpu_phase.followup import next_look
from voxint.gpu_phase.model import HOLDER, Condition, Lane, LlmSeen, Phase, PhaseState, ServiceSeen, WorkSeen
from voxint.gpu_phase.outcomes import Done, Free, Granted, Held, Pending
from voxint.gpu_phase.plan import Call, Seen, may, plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.gpu_phase.policy import Policy

_STEP = timedelta(seconds=1)
_SERVICE = "services"


@dataclass(frozen=True, slots=True)
class World:
    """How long the outside takes, as length of time each."""

    llm_stop: timedelta = timedelta(seconds=5)
    llm_start: timedelta = timedelta(seconds=60)
    services_start: timedelta = timedelta(seconds=20)
    services_stop: timedelta = timedelta(seconds=2)

    @property
    def turn(self) -> timedelta:
        """What a turn costs at least, there and back."""
        return self.llm_stop + self.services_start + self.services_stop + self.llm_start


@dataclass(frozen=True, slots=True)
class Arrival:
    """A recording: when it comes, its time on the model services, and its time on the language model."""

    at: datetime
    gpu: timedelta
    post: timedelta


@dataclass
class Outcome:
    """What came of it. `heard` and `done` are waits from the arrival, in the recordings' order."""

    length: timedelta
    turns: int = 0
    phases: dict[Phase, timedelta] = field(default_factory=dict)
    heard: list[timedelta] = field(default_factory=list)
    done: list[timedelta] = field(default_factory=list)
    unfinished: int = 0
    llm_away: timedelta = timedelta(0)
    unused: timedelta = timedelta(0)
    """Time in which the language model was away and no recording was worked on either."""

    def share(self, part: timedelta) -> float:
        """A part of the whole time."""
        return part / self.length


@dataclass
class _Job:
    arrival: Arrival
    left: timedelta


class Simulation:
    """One policy in one world. The model services work on one recording at a time, and so does the language model."""

    def __init__(self, policy: Policy, world: World, follow_up: timedelta, begin: datetime) -> None:
        self._policy = policy
        self._world = world
        self._follow_up = follow_up
        self._now = begin
        self._row = PhaseState(Phase.LLM, begin)
        self._gpu: deque[_Job] = deque()
        self._post: deque[_Job] = deque()
        self._at_work: dict[Lane, _Job] = {}
        self._held: str | None = None
        self._leases = 0
        self._llm_up = begin
        self._llm_down: datetime | None = None
        self._started: datetime | None = None
        self._stopped: datetime | None = begin
        self._next_tick = begin
        self._quiet = 0

    def run(self, arrivals: Iterable[Arrival], length: timedelta) -> Outcome:
        """The whole time, in steps of a second.

        Args:
            arrivals: the recordings, in any order.
            length: how long the time is; what has not ended by then counts as unfinished.
        """
        ahead = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        found, end = Outcome(length), self._now + length
        while self._now < end:
            while ahead and ahead[0].at <= self._now:
                arrival = ahead.popleft()
                self._gpu.append(_Job(arrival, arrival.gpu))
            if self._now >= self._next_tick:
                found.turns += self._tick()
            self._account(found, self._work(found))
            self._now += _STEP
        found.unfinished = len(ahead) + len(self._gpu) + len(self._post) + len(self._at_work)
        return found

    # --- a tick ---------------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        """A tick, and when the next one comes; gives 1 where it began to ask for the GPU."""
        before = self._row
        seen = Seen(self._now, self._seen_work())
        for call in plan(before, None):
            if may(call, seen):
                seen = self._called(call, seen)
        made = decide(before, seen, self._policy)
        self._row = made.state
        self._quiet = 0 if made.moved else self._quiet + 1
        soon = next_look(made.state, self._now, self._policy, self._follow_up, moved=made.moved, quiet=self._quiet)
        wait = self._policy.tick if soon is None else min(max(soon, _STEP), self._policy.tick)
        self._next_tick = self._now + wait
        return int(made.moved and made.state.phase is Phase.ACQUIRING)

    def _seen_work(self) -> WorkSeen:
        return WorkSeen(bool(self._gpu), Lane.GPU in self._at_work, Lane.POST in self._at_work)

    def _called(self, call: Call, seen: Seen) -> Seen:
        match call:
            case Call.PROBE_LLM:
                return replace(seen, llm=LlmSeen(ready=self._llm_ready))
            case Call.INSPECT | Call.HEALTH:
                return replace(seen, services=(self._service(),))
            case Call.STATUS:
                return replace(seen, status=Held(HOLDER, self._held) if self._held else Free())
            case Call.ACQUIRE:
                return replace(seen, acquire=self._acquired())
            case Call.RENEW:
                return replace(seen, renewal=self._grant())
            case Call.RELEASE:
                return replace(seen, release=self._released())
            case Call.START if self._started is None:
                self._started, self._stopped = self._now, None
            case Call.STOP if self._started is not None:
                self._started, self._stopped = None, self._now + self._world.services_stop
            case _:
                pass
        return seen

    def _grant(self) -> Granted:
        return Granted(self._held or "", self._now + self._policy.ttl)

    def _acquired(self) -> Granted | Pending:
        if self._llm_down is None:
            self._llm_down = self._now + self._world.llm_stop
        if self._now < self._llm_down:
            return Pending()
        if self._held is None:
            self._leases += 1
            self._held = f"lease-{self._leases}"
        return self._grant()

    def _released(self) -> Done | Pending:
        if self._llm_down is not None:
            self._llm_down = None
            self._llm_up = self._now + self._world.llm_start
        if self._now < self._llm_up:
            return Pending()
        self._held = None
        return Done()

    @property
    def _llm_ready(self) -> bool:
        return self._llm_down is None and self._now >= self._llm_up

    def _service(self) -> ServiceSeen:
        if self._started is not None:
            healthy = self._now >= self._started + self._world.services_start
            return ServiceSeen(_SERVICE, Condition.RUNNING, healthy=healthy)
        ending = self._stopped is not None and self._now < self._stopped
        return ServiceSeen(_SERVICE, Condition.RUNNING if ending else Condition.STOPPED)

    # --- the work -------------------------------------------------------------------------------------------------

    def _work(self, found: Outcome) -> frozenset[Lane]:
        """A second of work; gives the lanes in which some was done."""
        for lane, queue in ((Lane.GPU, self._gpu), (Lane.POST, self._post)):
            if lane not in self._at_work and queue and lanes.is_open(lane, self._row, self._now, self._policy):
                self._at_work[lane] = queue.popleft()
        worked = frozenset(self._at_work)
        for lane, job in list(self._at_work.items()):
            job.left -= _STEP
            if job.left > timedelta(0):
                continue
            del self._at_work[lane]
            waited = self._now + _STEP - job.arrival.at
            if lane is Lane.GPU:
                found.heard.append(waited)
                self._post.append(_Job(job.arrival, job.arrival.post))
            else:
                found.done.append(waited)
        return worked

    def _account(self, found: Outcome, worked: frozenset[Lane]) -> None:
        phase = self._row.phase
        found.phases[phase] = found.phases.get(phase, timedelta(0)) + _STEP
        if not self._llm_ready:
            found.llm_away += _STEP
            if Lane.GPU not in worked:
                found.unused += _STEP


def least_away(arrivals: Sequence[Arrival], world: World) -> timedelta:
    """A lower bound of the language model's time away: all the recordings' work in one turn. None need wait less for it."""
    work = sum((arrival.gpu for arrival in arrivals), timedelta(0))
    return work + world.turn if arrivals else timedelta(0)


def quantile(waits: Sequence[timedelta], share: float) -> timedelta | None:
    """The wait that so large a share of the recordings did not exceed; None without a recording."""
    if not waits:
        return None
    ordered = sorted(waits)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
