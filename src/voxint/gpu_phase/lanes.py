"""Is a lane open? The one rule, used by the gate, the status, the texts and the walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.gpu_phase.model import DRAINING_LANE, Lane, Phase

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.gpu_phase.model import PhaseState
    from voxint.gpu_phase.policy import Policy


def is_open(lane: Lane, state: PhaseState | None, now: datetime, policy: Policy) -> bool:
    """Whether work that has not begun may begin in `lane` at `now`. `state` None means that no row is stored."""
    if not policy.enabled:
        return True
    if state is None:
        return False
    if lane is Lane.GPU:
        return gpu_lane_open(state, now)
    return post_lane_open(state, now, policy)


def goes_on(lane: Lane, state: PhaseState | None, now: datetime) -> bool:
    """Whether segments that have begun may go on in `lane` although it is closed: it is being drained."""
    if state is None or DRAINING_LANE.get(state.phase) is not lane:
        return False
    return lane is Lane.POST or lease_good(state, now)


def lease_good(state: PhaseState, now: datetime) -> bool:
    """Whether there is a lease that is not lost and has not passed its end."""
    if state.lease_id is None or state.lease_lost:
        return False
    return state.lease_expires_at is None or now < state.lease_expires_at


def gpu_lane_open(state: PhaseState, now: datetime) -> bool:
    """Audio, under a lease that is ours and has not passed its end."""
    return state.phase is Phase.AUDIO and lease_good(state, now)


def post_lane_open(state: PhaseState, now: datetime, policy: Policy) -> bool:
    """The language model's own phase, and an answer of all its endpoints that is fresh."""
    if state.phase is not Phase.LLM or not state.llm_ready or state.llm_checked_at is None:
        return False
    return now - state.llm_checked_at <= policy.answer_max_age
