"""Is a lane open? The one rule, used by the gate, the status, the texts and the walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Lane, Phase

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


def gpu_lane_open(state: PhaseState, now: datetime) -> bool:
    """Audio, under a lease that is ours and has not passed its end."""
    if state.phase is not Phase.AUDIO or state.lease_lost:
        return False
    return state.lease_expires_at is None or now < state.lease_expires_at


def post_lane_open(state: PhaseState, now: datetime, policy: Policy) -> bool:
    """The language model's own phase, and an answer of all its endpoints that is fresh."""
    if state.phase is not Phase.LLM or not state.llm_ready or state.llm_checked_at is None:
        return False
    return now - state.llm_checked_at <= policy.answer_max_age
