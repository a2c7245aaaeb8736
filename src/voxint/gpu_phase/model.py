"""The values of the phase machine: phases, lanes, the stored state, requests, and what a tick makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

HOLDER = "voxint"
"""The holder's name in every lease: one broker serves one Voxint."""

LAST_ERROR_LIMIT = 300
"""Characters of an error that are kept and shown."""


class Phase(StrEnum):
    """Who owns the GPU now. The row in `gpu_phase` holds one of these; no row is shown as `none`."""

    LLM = "llm"
    DRAINING_POST = "draining_post"
    ACQUIRING = "acquiring"
    STARTING_SERVICES = "starting_services"
    AUDIO = "audio"
    DRAINING = "draining"
    STOPPING_SERVICES = "stopping_services"
    RELEASING = "releasing"
    ERROR = "error"


class Lane(StrEnum):
    """The two kinds of work: `gpu` needs the model services, `post` needs the language model."""

    GPU = "gpu"
    POST = "post"


ON_THE_WAY = frozenset(Phase) - {Phase.LLM, Phase.AUDIO, Phase.ERROR}
"""Phases that are passed through: a follow-up tick has something to see there."""

DRAINING_LANE = {Phase.DRAINING: Lane.GPU, Phase.DRAINING_POST: Lane.POST}
"""The lane whose begun segments go on, and are waited for, in a draining phase."""

VOXINT_HAS_GPU = frozenset(
    {
        Phase.ACQUIRING,
        Phase.STARTING_SERVICES,
        Phase.AUDIO,
        Phase.DRAINING,
        Phase.STOPPING_SERVICES,
        Phase.RELEASING,
    }
)
"""Phases in which the language model is expected to be down."""


class RequestKind(StrEnum):
    """What an operator may ask for."""

    AUDIO_NOW = "audio-now"
    RELEASE = "release"


class RequestOutcome(StrEnum):
    """How a request ended."""

    ACTED = "acted"  # a step was made because of it
    MET = "met"  # what it asks for was already so, or under way
    SUPERSEDED = "superseded"  # a newer one took its place


@dataclass(frozen=True, slots=True)
class Request:
    """A pending operator's request; `made_in` is the stored phase at the moment it was recorded (None: no row)."""

    id: int
    kind: RequestKind
    made_in: Phase | None
    requested_at: datetime
    requested_by: str = ""


@dataclass(frozen=True, slots=True)
class PhaseState:
    """The stored row, as far as decisions depend on it. All moments are aware and UTC."""

    phase: Phase
    phase_since: datetime
    lease_id: str | None = None
    lease_expires_at: datetime | None = None
    lease_lost: bool = False
    last_error: str | None = None
    failures: int = 0
    retry_after: datetime | None = None
    cycle_failed: bool = False
    llm_ready: bool = False
    llm_checked_at: datetime | None = None
    note: str | None = None
    """What the last tick saw that keeps things waiting, in words; rewritten by every tick."""

    def age(self, now: datetime) -> timedelta:
        """How long the phase has lasted at `now`."""
        return now - self.phase_since

    def not_ahead_of(self, now: datetime) -> PhaseState:
        """The row at `now` where the clock was set back since it was written: no phase begins in the future.

        Else dwell and limits would stand still until the clock is there again, be it for a day. A wait that was counted
        on the same clock goes back by as much.
        """
        ahead = -self.age(now)
        if ahead <= timedelta(0):
            return self
        wait = None if self.retry_after is None else self.retry_after - ahead
        return replace(self, phase_since=now, retry_after=wait)

    @property
    def lease_renewable(self) -> bool:
        """Whether there is a lease id that the broker may still honour."""
        return self.lease_id is not None and not self.lease_lost


class Condition(StrEnum):
    """What an inspection says of one model service."""

    STOPPED = "stopped"
    RUNNING = "running"  # anything that may hold GPU memory: also paused, starting and stopping
    UNKNOWN = "unknown"  # could not be asked; never taken for stopped


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """One model service as this tick saw it."""

    name: str
    condition: Condition
    healthy: bool = False
    detail: str = ""
    placement: str = ""
    """What is to be said of the device it works on; empty where nothing is."""
    barred: bool = False
    """Whether it works on a device that the operator does not let audio begin with."""


@dataclass(frozen=True, slots=True)
class WorkSeen:
    """What the database says of the work, as yes and no; counting is left to those who show numbers."""

    gpu_queued: bool = False  # GPU-lane work that is queued and not paused
    gpu_in_progress: bool = False  # running, or between two stages of a segment that has begun
    post_in_progress: bool = False


@dataclass(frozen=True, slots=True)
class LlmSeen:
    """The answer of all configured language-model endpoints together."""

    ready: bool
    detail: str = ""


class Cause(StrEnum):
    """Why a tick moved the phase, or why it stayed. One name for the log, the history and the texts."""

    # moves
    FIRST_TICK = "first_tick"
    SERVICE_RUNS = "service_runs"
    LEASE_FOUND = "lease_found"
    AUDIO_NOW = "audio_now"
    WORK_WAITS = "work_waits"
    RELEASE_ASKED = "release_asked"
    POST_DRAINED = "post_drained"
    GRANTED = "granted"
    REFUSED = "refused"
    ACQUIRE_FAILED = "acquire_failed"
    ACQUIRE_LIMIT = "acquire_limit"
    SERVICES_HEALTHY = "services_healthy"
    START_LIMIT = "start_limit"
    WRONG_DEVICE = "wrong_device"
    LEASE_LOST = "lease_lost"
    SERVICE_STOPPED = "service_stopped"
    QUEUE_EMPTY = "queue_empty"
    MAX_AUDIO = "max_audio"
    WINDOW_CLOSED = "window_closed"
    DRAINED = "drained"
    RELEASE_FORCED = "release_forced"
    SERVICES_STOPPED = "services_stopped"
    STOP_LIMIT = "stop_limit"
    RELEASED = "released"
    NOTHING_HELD = "nothing_held"
    STATUS_UNKNOWN = "status_unknown"
    RELEASE_FAILED = "release_failed"
    RELEASE_LIMIT = "release_limit"
    RETRY = "retry"
    # stays
    IDLE = "idle"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    HELD_OFF = "held_off"
    LEASE_LEARNED = "lease_learned"
    WORKING = "working"


@dataclass(frozen=True, slots=True)
class Cut:
    """Running GPU work is put back: its services are going away. Only stages in a blamed service use an attempt."""

    blamed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Transition:
    """What a tick makes of the state: the row to save, why, and what else is saved with it."""

    before: PhaseState
    state: PhaseState
    cause: Cause
    request: RequestOutcome | None = None
    """What becomes of the pending request; None leaves it pending."""
    cut: Cut | None = None
    drained: Lane | None = None
    """The lane that must still have nothing in progress at the moment of the save, or the step is thrown away."""

    @property
    def moved(self) -> bool:
        """Whether this is a step."""
        return self.before.phase is not self.state.phase


P, C = Phase, Cause
EDGES: dict[tuple[Phase, Phase], frozenset[Cause]] = {
    (P.LLM, P.STOPPING_SERVICES): frozenset({C.SERVICE_RUNS, C.LEASE_FOUND}),
    (P.LLM, P.DRAINING_POST): frozenset({C.WORK_WAITS, C.AUDIO_NOW}),
    (P.DRAINING_POST, P.STOPPING_SERVICES): frozenset({C.SERVICE_RUNS}),
    (P.DRAINING_POST, P.LLM): frozenset({C.RELEASE_ASKED}),
    (P.DRAINING_POST, P.ACQUIRING): frozenset({C.POST_DRAINED}),
    (P.ACQUIRING, P.STOPPING_SERVICES): frozenset({C.SERVICE_RUNS}),
    (P.ACQUIRING, P.STARTING_SERVICES): frozenset({C.GRANTED}),
    (P.ACQUIRING, P.LLM): frozenset({C.REFUSED}),
    (P.ACQUIRING, P.RELEASING): frozenset({C.RELEASE_ASKED, C.ACQUIRE_FAILED, C.ACQUIRE_LIMIT}),
    (P.STARTING_SERVICES, P.AUDIO): frozenset({C.SERVICES_HEALTHY}),
    (P.STARTING_SERVICES, P.STOPPING_SERVICES): frozenset(
        {C.LEASE_LOST, C.START_LIMIT, C.WRONG_DEVICE, C.RELEASE_ASKED}
    ),
    (P.AUDIO, P.DRAINING): frozenset({C.QUEUE_EMPTY, C.MAX_AUDIO, C.WINDOW_CLOSED, C.RELEASE_ASKED}),
    (P.AUDIO, P.STOPPING_SERVICES): frozenset({C.LEASE_LOST, C.SERVICE_STOPPED}),
    (P.DRAINING, P.STOPPING_SERVICES): frozenset({C.DRAINED, C.RELEASE_FORCED, C.LEASE_LOST, C.SERVICE_STOPPED}),
    (P.STOPPING_SERVICES, P.RELEASING): frozenset({C.SERVICES_STOPPED}),
    (P.STOPPING_SERVICES, P.ERROR): frozenset({C.STOP_LIMIT}),
    (P.RELEASING, P.LLM): frozenset({C.RELEASED, C.NOTHING_HELD, C.STATUS_UNKNOWN}),
    (P.RELEASING, P.STOPPING_SERVICES): frozenset({C.SERVICE_RUNS}),
    (P.RELEASING, P.ERROR): frozenset({C.RELEASE_FAILED, C.RELEASE_LIMIT}),
    (P.ERROR, P.STOPPING_SERVICES): frozenset({C.RETRY, C.RELEASE_ASKED}),
}
"""Every step that the machine can make, and the causes that each can have. The diagram is made from this."""
del P, C
