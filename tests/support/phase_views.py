"""Phase views for tests of texts: a fixed noon, and a row for each phase as the machine would leave it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from voxint.gpu_phase.model import Lane, Phase, PhaseState
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.view import PhaseView, lane_view

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LEASED = {Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING, Phase.STOPPING_SERVICES, Phase.RELEASING}


def state_of(phase, *, age=timedelta(minutes=5), **values):
    """A row in that phase."""
    leased = {"lease_id": "b7c1", "lease_expires_at": NOON + timedelta(minutes=9)} if phase in LEASED else {}
    return PhaseState(phase, NOON - age, **leased | values)


def view_of(phase, *, gpu=(0, 0), post=(0, 0), policy=None, state=None, ticked=timedelta(seconds=10), **values):
    """A view of that phase, with (waiting, running) of each lane; `phase` None means that no row is stored."""
    policy = policy or Policy()
    if state is None and phase is not None:
        state = state_of(phase)
    view = PhaseView(
        policy=policy,
        now=NOON,
        state=state,
        ticked_at=NOON - ticked if state is not None else None,
        request=None,
        gpu_lane=lane_view(Lane.GPU, state, NOON, policy, gpu),
        post_lane=lane_view(Lane.POST, state, NOON, policy, post),
        hand_back_failed=phase is Phase.ERROR,
    )
    return replace(view, **values)


def answered(**values):
    """A row in llm with a fresh answer of the language model."""
    return state_of(Phase.LLM, llm_ready=True, llm_checked_at=NOON - timedelta(seconds=10), **values)
