"""The read model: one look at the database, and everything that people are shown comes from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Lane, Phase
from voxint.gpu_phase.view import PhaseView, lane_view

if TYPE_CHECKING:
    from voxint.gpu_phase.model import PhaseState
    from voxint.gpu_phase.store import PhaseStore
    from voxint.settings import Settings

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_RECENT_EVENTS = 100
"""A hand-back that is tried again left its last `error` among the newest events: every step between is one."""


def look(store: PhaseStore, settings: Settings, *, bound: int | None = None) -> PhaseView:
    """Read the phase as it is now. Nothing is written, and no request is made to anybody else.

    Args:
        store: the phase in the database.
        settings: the policy's numbers.
        bound: count each lane up to this; for pages that look often.
    """
    policy = settings.policy
    loaded = store.load()
    depths = store.depths() if bound is None else store.depths(bound)
    control = store.control()
    state = loaded.stored.state if loaded.stored else None
    return PhaseView(
        policy=policy,
        now=loaded.now,
        state=state,
        ticked_at=loaded.stored.ticked_at if loaded.stored else None,
        request=loaded.request,
        gpu_lane=lane_view(Lane.GPU, state, loaded.now, policy, (depths.gpu_waiting, depths.gpu_running)),
        post_lane=lane_view(Lane.POST, state, loaded.now, policy, (depths.post_waiting, depths.post_running)),
        hold_until=control.hold_until,
        hold_by=control.hold_by,
        paused_at=control.paused_at,
        paused_by=control.paused_by,
        hand_back_failed=_hand_back_failed(store, state),
        llm_silent_since=loaded.stored.llm_silent_since if loaded.stored else None,
    )


def _hand_back_failed(store: PhaseStore, state: PhaseState | None) -> bool:
    """Whether this hand-back has been in `error`: from there the only way to `llm` is the one it is on."""
    if state is None or state.phase not in {Phase.STOPPING_SERVICES, Phase.RELEASING}:
        return state is not None and state.phase is Phase.ERROR
    ends = [
        event.to_phase
        for event in store.events(_EVER, _RECENT_EVENTS)
        if event.to_phase in {Phase.LLM, Phase.AUDIO, Phase.ERROR}
    ]
    return bool(ends) and ends[-1] is Phase.ERROR
