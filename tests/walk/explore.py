"""Goes through every state that the world can be in, tick by tick and event by event, and looks at each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phase_calls import FIELDS

from voxint.gpu_phase import lanes
from voxint.gpu_phase.model import Lane, Phase
from walk import gate, tick
from walk.tick import Decisions, Made, Outside, Saw
from walk.world import (
    AUDIO_NOW,
    BETWEEN,
    DEAD,
    FOREIGN,
    FREE,
    HOURS_DECIDE,
    IN_HOURS,
    IN_TURN,
    NO_REQUEST,
    NONE,
    NOW,
    OTHERS,
    OURS,
    OVER_BEFORE,
    OVER_SINCE,
    OWN_SERVICES_MAY_RUN,
    POLICY,
    POST_WORK_MAY_RUN,
    QUEUED,
    RUNNING,
    RUNS,
    STARTS,
    STOPPED,
    STRAY,
    Row,
    World,
    older,
    release_made_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxint.gpu_phase.plan import Call

FIRST_ROW = Row(Phase.LLM)
LANE_LIMIT = 40
"""Ticks of a world that is well within which an open lane must be reached; what is measured is far below."""


class ViolationError(Exception):
    """Something that must never be."""


@dataclass
class Walk:
    """One walk.

    Args:
        most: stop after this many states; None goes to the end.
    """

    most: int | None = None
    edges: int = 0
    longest_to_lane: int = 0
    longest_to_post: int = 0
    longest_to_idle: int = 0
    known: dict[World, tuple[World, str] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.decisions = Decisions()
        self._open: dict[tuple[Lane, Row | None], bool] = {}
        self._claims: dict[tuple[Lane, int, Row | None], bool] = {}
        self._well: dict[tuple[World, bool], World] = {}
        self._ticks_to_lane: dict[World, int] = {}
        self._ticks_to_post: dict[World, int] = {}
        self._ticks_to_idle: dict[World, int] = {}

    def go(self) -> None:
        """Walk. Raises ViolationError at the first thing that is wrong."""
        waiting = deque(STARTS)
        for world in STARTS:
            self.known[world] = None
            self.look(world)
        while waiting and (self.most is None or len(self.known) < self.most):
            world = waiting.popleft()
            for label, after in self.steps(world):
                self.edges += 1
                if after not in self.known:
                    self.known[after] = (world, label)
                    self.look(after)
                    waiting.append(after)

    def way_to(self, world: World) -> list[str]:
        """How the walk came to a state: states and what happened between them, first to last."""
        way = [str(world)]
        came = self.known.get(world)
        while came is not None:
            before, label = came
            way += [f"  {label}", str(before)]
            came = self.known.get(before)
        return way[::-1]

    # --- what must hold in every state ---

    def look(self, w: World) -> None:
        """Look at one state. Raises ViolationError."""
        row = w.row
        phase = row.phase if row else None
        if self.opened(Lane.GPU, row) and self.opened(Lane.POST, row):
            raise ViolationError("both lanes are open")
        if RUNS in {w.one, w.two} and phase not in OWN_SERVICES_MAY_RUN:
            raise ViolationError(f"a model service that we started runs in {phase}")
        if w.gpu in {RUNNING, DEAD} and phase not in {Phase.AUDIO, Phase.DRAINING}:
            raise ViolationError(f"GPU-lane work runs in {phase}")
        if w.post in {RUNNING, DEAD} and phase not in POST_WORK_MAY_RUN:
            raise ViolationError(f"post-lane work runs in {phase}")
        self.look_ahead(w)

    def look_ahead(self, w: World) -> None:
        """Once the world is well: a lane opens, all work is done, every request ends; also where no worker is left."""
        self.longest_to_lane = max(self.longest_to_lane, self._ticks(w, self._ticks_to_lane, self.lane_is_open))
        self.longest_to_idle = max(self.longest_to_idle, self._ticks(w, self._ticks_to_idle, _nothing_left))
        self.longest_to_post = max(
            self.longest_to_post, self._ticks(w, self._ticks_to_post, self.post_is_open, workers=False)
        )

    def _ticks(self, w: World, known: dict[World, int], there: object, *, workers: bool = True) -> int:
        path: list[World] = []
        while w not in known:
            if there(w):  # type: ignore[operator]
                known[w] = 0
                break
            if len(path) > LANE_LIMIT * 3 or w in path[-50:]:
                raise ViolationError(f"the world is well, and this never comes: {there.__name__}")  # type: ignore[attr-defined]
            path.append(w)
            w = self.well(w, workers=workers)
        ticks = known[w]
        for before in reversed(path):
            ticks += 1
            known[before] = ticks
        if ticks > LANE_LIMIT:
            raise ViolationError(f"{ticks} ticks of a world that is well")
        return ticks

    def lane_is_open(self, w: World) -> bool:
        return self.opened(Lane.GPU, w.row) or self.post_is_open(w)

    def post_is_open(self, w: World) -> bool:
        return self.opened(Lane.POST, w.row)

    def opened(self, lane: Lane, row: Row | None) -> bool:
        key = lane, row
        if key not in self._open:
            state = self.decisions.state(row) if row else None
            self._open[key] = lanes.is_open(lane, state, NOW, POLICY)
        return self._open[key]

    # --- one step of anything ---

    def steps(self, w: World) -> Iterator[tuple[str, World]]:
        """Everything that can happen next."""
        yield from self.events(w)
        yield "time passes", self.later(w)
        yield from self.clock(w)
        yield from self.broker_and_services(w)
        yield from self.ticks(w)

    def later(self, w: World) -> World:
        return w._replace(
            row=older(w.row) if w.row else None,
            gpu=gate.after_a_while(w.gpu),
            post=gate.after_a_while(w.post),
            hold=0,
            hours=IN_HOURS,
        )

    def clock(self, w: World) -> Iterator[tuple[str, World]]:
        """What the hour of the day does; that a window begins is a part of `later`."""
        if w.hours != IN_HOURS:
            yield "time passes outside the hours", self.later(w)._replace(hours=w.hours)
        elif w.row is not None and w.row.phase in HOURS_DECIDE:
            yield "the hours were over before", w._replace(hours=OVER_BEFORE)
            if w.row.age:
                yield "the hours end", w._replace(hours=OVER_SINCE)

    def broker_and_services(self, w: World) -> Iterator[tuple[str, World]]:
        if w.broker in {OURS, STRAY}:
            yield "the broker loses the lease", w._replace(broker=FREE)
        elif w.broker == FREE:
            yield "the broker gives the GPU to another", w._replace(broker=OTHERS)
        else:
            yield "the other holder leaves", w._replace(broker=FREE)
        started = RUNS if w.row and w.row.phase in IN_TURN else FOREIGN
        for name in ("one", "two"):
            condition = getattr(w, name)
            if condition == STOPPED:
                yield f"others start {name}", _sorted(w._replace(**{name: started}))
            else:
                yield f"{name} dies", _sorted(w._replace(**{name: STOPPED}))
            if w.one == w.two:
                return

    def events(self, w: World) -> Iterator[tuple[str, World]]:
        """What workers and operators do, at any time."""
        phase = w.row.phase if w.row else None
        for lane, item in ((Lane.GPU, w.gpu), (Lane.POST, w.post)):
            if self.claims(lane, item, w.row):
                self.look_at_claim(lane, item, w.row)
                yield f"a worker claims {lane}", _with(w, lane, RUNNING)
            if gate.write_accepted(holds_claim=False):
                raise ViolationError("work is ended by a worker that has lost its claim: it can be done twice")
            if item == RUNNING:
                yield f"a stage of {lane} ends, another follows", _with(w, lane, BETWEEN)
                yield f"the last stage of {lane} ends", _done(w, lane)
                yield f"the worker of {lane} dies", _with(w, lane, DEAD)
            if item == DEAD:
                yield f"the dead work of {lane} is given back", _with(w, lane, gate.reap(item))
            if item == NONE:
                yield f"work comes to {lane}", _with(w, lane, QUEUED)
        yield "release is recorded", w._replace(request=release_made_in(phase))
        yield "audio-now is recorded", w._replace(request=AUDIO_NOW)
        if phase is Phase.LLM and w.row and not w.row.retry and w.request == NO_REQUEST and not w.hold:
            yield "a hold is set", w._replace(hold=1)

    def claims(self, lane: Lane, item: int, row: Row | None) -> bool:
        key = lane, item, row
        if key not in self._claims:
            self._claims[key] = gate.may_claim(lane, item, self.decisions.state(row) if row else None)
        return self._claims[key]

    def look_at_claim(self, lane: Lane, item: int, row: Row | None) -> None:
        """Work begins only where it may, told from the row alone. Raises ViolationError."""
        phase = row.phase if row else None
        good_lease = row is not None and row.lease and row.end != 2 and not row.lost
        answered = row is not None and row.ready > 0
        right = {
            (Lane.GPU, Phase.AUDIO): good_lease,
            (Lane.GPU, Phase.DRAINING): good_lease and item != QUEUED,
            (Lane.POST, Phase.LLM): answered,
            (Lane.POST, Phase.DRAINING_POST): item != QUEUED,
        }
        if not right.get((lane, phase), False):  # type: ignore[arg-type]
            raise ViolationError(f"{lane}-lane work ({item}) begins in {row}")

    # --- ticks ---

    def ticks(self, w: World) -> Iterator[tuple[str, World]]:
        """Every way in which a tick can go, and everywhere that it can break off."""
        if w.row is None:
            yield "the first tick writes the row", w._replace(row=FIRST_ROW)
            return
        calls = self.decisions.plan(w.row, w.request)
        for saw, outside, rest in self.performed(w, calls, Saw(), Outside(w.broker, w.one, w.two)):
            crashed = _outside(w, outside)
            if crashed != w:
                yield "a tick calls, and crashes before its save", crashed
            if rest:
                continue
            made = self.decisions.made(w.row, (w.request, w.hold, w.hours), w.gpu, w.post, saw)
            if made.broken:
                raise ViolationError(made.broken[0])
            yield f"tick {saw}", self.saved(crashed, w, made)
            for label, meanwhile in self.events(crashed):
                yield f"tick {saw}; meanwhile {label}", self.saved(meanwhile, w, made)

    def performed(
        self, w: World, calls: tuple[Call, ...], saw: Saw, outside: Outside
    ) -> Iterator[tuple[Saw, Outside, tuple[Call, ...]]]:
        """Each prefix of the calls with each of its answers; the last element says which calls are left."""
        while calls and not self.decisions.may(calls[0], saw):
            calls = calls[1:]
        yield saw, outside, calls
        if not calls:
            return
        call, rest = calls[0], calls[1:]
        wrong = tick.wrong_call(call, w.row, saw, outside, w.gpu, w.post)  # type: ignore[arg-type]
        if wrong:
            raise ViolationError(wrong)
        for answer, after in tick.answers(call, w.row, outside):  # type: ignore[arg-type]
            now_saw = saw._replace(**{FIELDS[call]: answer}) if call in FIELDS else saw
            yield from self.performed(w, rest, now_saw, after)

    def saved(self, now: World, loaded: World, made: Made) -> World:
        """The save: the second look at the drained lane, what is cut, and the one request that was acted on."""
        if made.drained is not None:
            item = now.gpu if made.drained is Lane.GPU else now.post
            if not gate.still_drained(item):
                return now
        request = now.request
        newer = now.request != loaded.request
        if made.acted is not None and gate.consumes(newer=newer):
            request = NO_REQUEST
            if newer:
                raise ViolationError("a request that was recorded meanwhile was ended by a tick that did not see it")
        return World(
            made.row,
            tick.labelled(now.broker, made.row, made.lease_id),
            now.one,
            now.two,
            gate.cut(now.gpu) if made.cut else now.gpu,
            now.post,
            request,
            now.hold if made.row.phase is Phase.LLM else 0,
            now.hours if not made.moved and made.row.phase in HOURS_DECIDE else IN_HOURS,
        )

    # --- a world that is well ---

    def well(self, w: World, *, workers: bool) -> World:
        """One round of a world that is well: a tick with every answer as it should be, the workers, the dead, time."""
        key = w, workers
        if key not in self._well:
            self._well[key] = self._well_round(w, workers=workers)
        return self._well[key]

    def _well_round(self, w: World, *, workers: bool) -> World:
        """A step is followed by the next tick at once; where a tick was none, time passes."""
        gpu, post = w.gpu, w.post
        if workers:
            w = _done(w, Lane.GPU) if gpu == RUNNING else w
            w = _done(w, Lane.POST) if post == RUNNING else w
        else:
            gpu, post = (DEAD if item == RUNNING else item for item in (gpu, post))
            w = w._replace(gpu=gpu, post=post)
        if w.broker == OTHERS:
            w = w._replace(broker=FREE)
        before = w.row
        w = self._well_tick(w)
        if workers:
            for lane, item in ((Lane.GPU, w.gpu), (Lane.POST, w.post)):
                if self.claims(lane, item, w.row):
                    w = _with(w, lane, RUNNING)
        if before is not None and w.row is not None and w.row.phase is before.phase:
            w = self.later(w._replace(gpu=gate.reap(w.gpu), post=gate.reap(w.post)))
        return w

    def _well_tick(self, w: World) -> World:
        if w.row is None:
            return w._replace(row=FIRST_ROW)
        saw, outside = Saw(), Outside(w.broker, w.one, w.two)
        for call in self.decisions.plan(w.row, w.request):
            if not self.decisions.may(call, saw):
                continue
            answer, outside = tick.right_answer(call, outside)
            if call in FIELDS:
                saw = saw._replace(**{FIELDS[call]: answer})
        made = self.decisions.made(w.row, (w.request, w.hold, w.hours), w.gpu, w.post, saw)
        after = self.saved(_outside(w, outside), w, made)
        if self.opened(Lane.POST, after.row) and after.broker in {OURS, STRAY}:
            raise ViolationError(
                "a lease of ours is forgotten: the post lane is open, and the broker still holds it for us"
            )
        return after


def _nothing_left(w: World) -> bool:
    return w.gpu == NONE and w.post == NONE and w.request == NO_REQUEST and w.row is not None


def _sorted(w: World) -> World:
    return w if w.one <= w.two else w._replace(one=w.two, two=w.one)


def _outside(w: World, outside: Outside) -> World:
    return _sorted(w._replace(broker=outside.broker, one=outside.one, two=outside.two))


def _with(w: World, lane: Lane, item: int) -> World:
    return w._replace(gpu=item) if lane is Lane.GPU else w._replace(post=item)


def _done(w: World, lane: Lane) -> World:
    """The GPU lane's last stage hands the recording over to the post lane."""
    if lane is Lane.POST:
        return w._replace(post=NONE)
    return w._replace(gpu=NONE, post=w.post if w.post != NONE else QUEUED)
