"""The world of the walk: its variables with their ranges, and how a stored row is written as a small tuple and back.

Time is counted in units of 90 s, and every moment is told relative to now. What no decision can depend on is left out
(words, a failure count above one, an age above the phase's limit), so that the number of states is finite.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from voxint.gpu_phase.model import Lane, Phase, PhaseState, Request, RequestKind
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.windows import Windows

NOW: Final = datetime(2026, 5, 4, 12, tzinfo=UTC)
UNIT: Final = timedelta(seconds=90)
POLICY: Final = Policy(
    tick=timedelta(seconds=30),
    min_dwell=UNIT,
    max_audio=2 * UNIT,
    acquire_limit=UNIT,
    start_limit=UNIT,
    stop_limit=UNIT,
    release_limit=UNIT,
)
# GPU_PHASE_WINDOWS: one is open, it was over when the phase began, it ended in this phase.
IN_HOURS, OVER_BEFORE, OVER_SINCE = 0, 1, 2
POLICIES: Final = {
    IN_HOURS: POLICY,
    OVER_BEFORE: replace(POLICY, windows=Windows.parse("13:00-14:00", UTC)),
    OVER_SINCE: replace(POLICY, windows=Windows.parse("10:00-12:00", UTC)),
}
HOURS_DECIDE: Final = frozenset({Phase.LLM, Phase.AUDIO})
AGE_THAT_COUNTS: Final = {
    Phase.LLM: 1,
    Phase.DRAINING_POST: 0,
    Phase.ACQUIRING: 1,
    Phase.STARTING_SERVICES: 1,
    Phase.AUDIO: 2,
    Phase.DRAINING: 0,
    Phase.STOPPING_SERVICES: 1,
    Phase.RELEASING: 1,
    Phase.ERROR: 0,
}
"""The age, in units, from which on a phase decides as it always will."""

IN_TURN: Final = frozenset({Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING})
"""Phases of a turn that has not failed: count and backoff of before decide nothing there."""
OWN_SERVICES_MAY_RUN: Final = IN_TURN | {Phase.STOPPING_SERVICES, Phase.ERROR}
POST_WORK_MAY_RUN: Final = frozenset(Phase) - IN_TURN - {Phase.ACQUIRING}


class Row(NamedTuple):
    """The stored row. `end`: 0 no expiry, 1 ahead, 2 passed. `ready`: 0 no, else 1 + age of the answer in units."""

    phase: Phase
    age: int = 0
    lease: bool = False
    end: int = 0
    lost: bool = False
    failed: int = 0
    retry: int = 0
    cycle: bool = False
    ready: int = 0


# The broker: who holds the lease, in truth.
FREE, OURS, STRAY, OTHERS = 0, 1, 2, 3
# One model service.
STOPPED, RUNS, FOREIGN = 0, 1, 2
# One piece of work in a lane.
NONE, QUEUED, RUNNING, DEAD, BETWEEN, STALE = 0, 1, 2, 3, 4, 5
# The pending request.
NO_REQUEST, RELEASE_IN_LLM, RELEASE_IN_DRAINING, RELEASE_ELSEWHERE, AUDIO_NOW = 0, 1, 2, 3, 4


class World(NamedTuple):
    """One state of the walk."""

    row: Row | None
    broker: int
    one: int
    two: int
    gpu: int
    post: int
    request: int
    hold: int
    hours: int = IN_HOURS


VARIABLES: Final = (
    ("row", ("none, or: phase (9), age up to its limit, lease with its end ahead, passed or never, lost, failed before,"
     " cycle failed, units until retry (0 to 2), age of the language model's answer (none, 0, 1)")),
    ("broker", ("free; holds our lease that the row knows; holds one of ours that the row does not know; holds somebody"
     " else's")),
    ("services", "two, each: stopped; runs because we started it; was started by others"),
    ("GPU lane", ("one recording: none; queued; its stage runs; runs and its worker is dead; between two stages;"
     " the same, and nobody took it up in time")),
    ("post lane", "the same"),
    ("request", "none; release made in llm, in draining, or elsewhere; audio-now"),
    ("hold", "none; one unit long (set in llm, where no backoff is pending)"),
    ("hours", ("GPU_PHASE_WINDOWS has a window open; it was over when this phase began; it ended in this phase (told in llm"
     " and audio, where it can decide something)")),
)  # fmt: skip
"""Each variable and its range, for people."""

ANSWERS: Final = (
    ("inspect", "the truth; one or all services unknown"),
    ("health", "those that run are healthy; none is; unknown"),
    ("start, stop", "works for all, for one, for none"),
    ("probe", "ready; not ready"),
    ("status", "the truth; no answer; held by voxint without an id"),
    ("acquire", ("granted; granted and the answer lost; pending; refused for another, for nobody named, or naming"
     " voxint; no answer")),
    ("renew", "granted; granted under another id; lost; no answer"),
    ("release", "done; done and the answer lost; pending; no answer, or any other"),
)  # fmt: skip
"""What each call may bring, whatever the world is like."""

EVENTS: Final = (
    ("time", "passes by one unit, at any moment between two ticks; a window ends, and begins or not while time passes"),
    ("a crash", "after any call of a tick, and before its save; the next tick starts from what is stored"),
    ("broker", ("loses or expires a lease; gives it to somebody else, and takes it back")),
    ("services", "die; are started by others"),
    ("workers", "claim, also late on an old look at the clock; end a stage, end the lane's last stage, die, are reaped, write without a claim"),
    ("operator", "records release or audio-now, holds, uploads"),
    ("in mid-tick", "between its calls and its save, any one event of workers or operator"),
)  # fmt: skip
"""What may happen at any time."""


def state_of(row: Row) -> PhaseState:
    """The row as the machine knows it, at NOW."""
    end = {0: None, 1: NOW + UNIT, 2: NOW}[row.end]
    return PhaseState(
        row.phase,
        NOW - row.age * UNIT,
        lease_id="A" if row.lease else None,
        lease_expires_at=end,
        lease_lost=row.lost,
        failures=row.failed,
        retry_after=NOW + row.retry * UNIT if row.retry else None,
        cycle_failed=row.cycle,
        llm_ready=row.ready > 0,
        llm_checked_at=NOW - (row.ready - 1) * UNIT if row.ready else None,
    )


def row_of(state: PhaseState) -> Row:
    """The row as the walk knows it: what can still decide something, and no more."""
    phase = state.phase
    lost = state.lease_lost
    end = 0
    if state.lease_expires_at is not None and not lost and phase is not Phase.RELEASING:
        end = 1 if state.lease_expires_at > NOW else 2
    # In a turn that has not failed, its end either forgets the count and the backoff of before, or replaces them.
    counts = state.cycle_failed or phase in {Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING}
    retry = 0
    if counts and state.retry_after is not None and state.retry_after > NOW:
        retry = min(-((NOW - state.retry_after) // UNIT), 2)
    ready = 0
    if state.llm_ready and state.llm_checked_at is not None:
        ready = 1 + (NOW - state.llm_checked_at) // UNIT
    return Row(
        phase,
        min((NOW - state.phase_since) // UNIT, AGE_THAT_COUNTS[phase]),
        state.lease_id is not None,
        end,
        lost,
        min(state.failures, 1) if counts else 0,
        retry,
        state.cycle_failed and phase is not Phase.LLM,
        ready,
    )


def older(row: Row) -> Row:
    """The row one unit later."""
    return Row(
        row.phase,
        min(row.age + 1, AGE_THAT_COUNTS[row.phase]),
        row.lease,
        2 if row.end else 0,
        row.lost,
        row.failed,
        max(row.retry - 1, 0),
        row.cycle,
        # An answer two units old is stale: it decides as no answer does.
        0 if row.ready in {0, 2} else 2,
    )


def request_of(code: int) -> Request | None:
    """The request that a code stands for."""
    if code == NO_REQUEST:
        return None
    kind = RequestKind.AUDIO_NOW if code == AUDIO_NOW else RequestKind.RELEASE
    made_in = {RELEASE_IN_DRAINING: Phase.DRAINING, RELEASE_ELSEWHERE: Phase.AUDIO}.get(code, Phase.LLM)
    return Request(code, kind, made_in, NOW)


def release_made_in(phase: Phase | None) -> int:
    """The code of a release that is recorded now."""
    if phase in {None, Phase.LLM, Phase.DRAINING_POST}:
        return RELEASE_IN_LLM
    return RELEASE_IN_DRAINING if phase is Phase.DRAINING else RELEASE_ELSEWHERE


STARTS: Final = tuple(
    World(None, broker, one, two, gpu, post, NO_REQUEST, 0)
    for broker in (FREE, STRAY, OTHERS)
    for one, two in ((STOPPED, STOPPED), (STOPPED, FOREIGN), (FOREIGN, FOREIGN))
    for gpu in (NONE, QUEUED)
    for post in (NONE, QUEUED)
)
"""Where the walk begins: no row, with whatever an earlier life may have left."""

LANES: Final = (Lane.GPU, Lane.POST)
