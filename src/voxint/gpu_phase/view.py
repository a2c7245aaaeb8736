"""PURE: what people are shown of the phase, as one value. Status, doctor, console, alerts and metrics all read this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxint.gpu_phase import lanes
from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.reasons import NO_ANSWER, blind_in

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from voxint.gpu_phase.model import Lane, PhaseState, Request
    from voxint.gpu_phase.policy import Policy

NO_PHASE = "none"
"""The phase's name where no row is stored."""

STATUS_BOUND = 1_000_000
"""Depths that a person asks for are counted up to this."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane: whether work may begin in it, how much waits, how much runs."""

    open: bool
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class NextTry:
    """The earliest moment at which a switch to audio, or the next hand-back, begins by itself; and what binds it."""

    at: datetime
    binds: str


@dataclass(frozen=True, slots=True)
class PhaseView:
    """The stored phase and what stands around it, at one moment of the database's clock."""

    policy: Policy
    now: datetime
    state: PhaseState | None
    ticked_at: datetime | None
    request: Request | None
    gpu_lane: LaneView
    post_lane: LaneView
    hold_until: datetime | None = None
    hold_by: str | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    hand_back_failed: bool = False
    """Whether the hand-back that is under way has ended in `error` before."""
    llm_silent_since: datetime | None = None
    """Since when the language model has not answered in this stay in `llm`; None where it has, or was not asked."""

    @property
    def enabled(self) -> bool:
        """Whether GPU sharing is on."""
        return self.policy.enabled

    @property
    def phase(self) -> Phase | None:
        """The stored phase; None where there is none."""
        return self.state.phase if self.state else None

    @property
    def phase_name(self) -> str:
        """The phase as it is printed."""
        return self.state.phase.value if self.state else NO_PHASE

    @property
    def task_running(self) -> bool:
        """Whether the phase task runs: a row is stored, and a tick wrote it not long ago. Requests do not count."""
        return self.enabled and self.state is not None and not self.silent

    @property
    def silent(self) -> bool:
        """Whether a row is stored that no tick has written for longer than a running task would leave it."""
        if self.state is None:
            return False
        return self.ticked_at is None or self.now - self.ticked_at > self.policy.task_max_silence

    @property
    def leftover(self) -> bool:
        """Whether sharing is off while the row still says that something is held."""
        state = self.state
        return not self.enabled and state is not None and (state.phase is not Phase.LLM or state.lease_id is not None)

    @property
    def paused(self) -> bool:
        """Whether the queue of recordings is paused."""
        return self.paused_at is not None

    @property
    def held(self) -> bool:
        """Whether an operator's hold keeps switches away."""
        return self.hold_until is not None and self.now < self.hold_until

    @property
    def llm_overdue(self) -> bool:
        """Whether the broker says that the GPU is free, and the language model has not answered for too long."""
        state, since = self.state, self.llm_silent_since
        if state is None or state.phase is not Phase.LLM or since is None or not state.note:
            return False
        # What else is wrong stands before it in the note: then the broker did not say that the GPU is free.
        return state.note.startswith(NO_ANSWER) and self.now - since >= self.policy.release_limit

    @property
    def blind(self) -> str | None:
        """What could not be asked, so that no switch begins; None where all is known, or where it matters to none."""
        state = self.state
        if not self.enabled or state is None or state.phase not in {Phase.LLM, Phase.ACQUIRING}:
            return None
        return blind_in(state.note)

    @property
    def switch_wanted(self) -> bool:
        """Whether work waits for which a switch would begin."""
        return self.gpu_lane.waiting > 0 and not self.paused

    @property
    def waits_for_window(self) -> datetime | None:
        """When the hours in which a switch may begin come round again, where it is they that keep it away."""
        following = self.next_try
        return following.at if following is not None and following.binds == "windows" else None

    @property
    def next_try(self) -> NextTry | None:
        """When the phase moves on by itself at the earliest, in `llm` and in `error`; None elsewhere."""
        state = self.state
        if state is None:
            return None
        if state.phase is Phase.ERROR:
            return NextTry(state.retry_after or self.now, "backoff")
        if state.phase is not Phase.LLM:
            return None
        bounds = [NextTry(state.phase_since + self.policy.min_dwell, "min dwell")]
        if state.retry_after is not None:
            bounds.append(NextTry(state.retry_after, "backoff" if state.failures else "release"))
        if self.hold_until is not None and self.held:
            bounds.append(NextTry(self.hold_until, "hold"))
        return self._within_windows(max(bounds, key=lambda bound: bound.at))

    def _within_windows(self, bound: NextTry) -> NextTry:
        """The same, put off to the next hour in which a switch may begin."""
        windows, at = self.policy.windows, max(bound.at, self.now)
        closes_at = windows.closes_at(at)
        if closes_at is not None and closes_at - at < self.policy.min_dwell:
            at = closes_at  # too late in this window: it takes the next
        opens_at = windows.opens_at(at)
        return bound if opens_at is None else NextTry(opens_at, "windows")


def lane_view(lane: Lane, state: PhaseState | None, now: datetime, policy: Policy, depth: tuple[int, int]) -> LaneView:
    """One lane's view. `depth` is how much waits and how much runs."""
    return LaneView(lanes.is_open(lane, state, now, policy), *depth)


def age(view: PhaseView) -> timedelta | None:
    """How long the phase has lasted."""
    return view.state.age(view.now) if view.state else None


def document(view: PhaseView) -> dict[str, object]:
    """The object that `gpu-phase status --json` prints. Scripts read it: names and types stay. No lease id is in it."""
    state = view.state
    lasted = age(view)
    return {
        "enabled": view.enabled,
        "phase": view.phase_name,
        "phase_since": iso(state.phase_since) if state else None,
        "phase_age_seconds": round(lasted.total_seconds(), 3) if lasted is not None else None,
        "ticked_at": iso(view.ticked_at),
        "task_running": view.task_running,
        "lease_id_known": state is not None and state.lease_id is not None,
        "lease_expires_at": iso(state.lease_expires_at) if state else None,
        "last_error": state.last_error if state else None,
        "failures": state.failures if state else 0,
        "retry_after": iso(state.retry_after) if state else None,
        "request": view.request.kind.value if view.request else None,
        "llm_ready": state is not None and state.llm_ready,
        "llm_checked_at": iso(state.llm_checked_at) if state else None,
        "gpu_lane": _lane(view.gpu_lane),
        "post_lane": _lane(view.post_lane),
    }


def iso(moment: datetime | None) -> str | None:
    """A moment as JSON has it: ISO 8601, UTC, with Z."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _lane(lane: LaneView) -> dict[str, object]:
    return {"open": lane.open, "waiting": lane.waiting, "running": lane.running}
