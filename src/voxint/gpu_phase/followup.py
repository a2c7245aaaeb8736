"""When to look again before the next periodic tick: a pure function of what a tick saw.

Extra ticks are asked for only where there is something to see. Each is still one step; a lost one costs at most one
periodic tick.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import ON_THE_WAY, Phase

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.gpu_phase.model import PhaseState
    from voxint.gpu_phase.policy import Policy

AT_ONCE = timedelta(0)
FIRST_LOOKS = (timedelta(milliseconds=200), timedelta(milliseconds=500))
"""How soon to look again after the first and second tick that found nothing new."""


def next_look(
    state: PhaseState,
    now: datetime,
    policy: Policy,
    every: timedelta,
    *,
    moved: bool,
    quiet: int,
    hold_until: datetime | None = None,
) -> timedelta | None:
    """How long until the next extra tick; None when the periodic one is enough.

    Args:
        state: what is stored after this tick.
        now: the tick's moment.
        policy: the operator's numbers.
        every: GPU_PHASE_FOLLOW_UP_SECONDS; zero turns extra ticks off.
        moved: whether this tick was a step.
        quiet: how many ticks in a row, this one included, found nothing new.
        hold_until: the end of an operator's hold.
    """
    if every <= timedelta(0):
        return None
    if state.phase in ON_THE_WAY or awaits_language_model(state, now, policy):
        return AT_ONCE if moved else _again(quiet, every)
    due = _stored_moment(state, policy, hold_until)
    if due is not None and timedelta(0) < due - now < policy.tick:
        return due - now
    return None


def awaits_language_model(state: PhaseState, now: datetime, policy: Policy) -> bool:
    """Just back in llm, with nobody able to work until the language model answers: that is still a change of hands."""
    return state.phase is Phase.LLM and not state.llm_ready and state.age(now) < 2 * policy.answer_max_age


def _again(quiet: int, every: timedelta) -> timedelta:
    looks = [look for look in FIRST_LOOKS if look < every]
    return looks[quiet - 1] if 0 < quiet <= len(looks) else every


def _stored_moment(state: PhaseState, policy: Policy, hold_until: datetime | None) -> datetime | None:
    """The moment after which the next tick may decide otherwise without anything else happening."""
    match state.phase:
        case Phase.LLM:
            return max(
                moment
                for moment in (state.phase_since + policy.min_dwell, state.retry_after, hold_until)
                if moment is not None
            )
        case Phase.AUDIO:
            return state.phase_since + policy.min_dwell
        case Phase.ERROR:
            return state.retry_after
        case _:
            return None
