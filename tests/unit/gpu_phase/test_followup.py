from datetime import UTC, datetime, timedelta

import pytest

from voxint.gpu_phase.followup import next_look
from voxint.gpu_phase.model import ON_THE_WAY, Phase, PhaseState
from voxint.gpu_phase.policy import Policy

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = Policy()
SECOND = timedelta(seconds=1)


def look(state, *, moved=False, quiet=1, every=SECOND, policy=POLICY, hold_until=None, now=NOON):
    return next_look(state, now, policy, every, moved=moved, quiet=quiet, hold_until=hold_until)


@pytest.mark.parametrize("phase", sorted(Phase))
def test_zero_turns_every_extra_tick_off(phase):
    state = PhaseState(phase, NOON - timedelta(seconds=590), retry_after=NOON + SECOND)
    assert look(state, moved=True, every=timedelta(0)) is None


@pytest.mark.parametrize("phase", sorted(ON_THE_WAY))
def test_on_the_way_a_step_is_followed_at_once_and_quiet_ticks_ever_later(phase):
    state = PhaseState(phase, NOON)
    assert look(state, moved=True, quiet=0) == timedelta(0)
    assert [look(state, quiet=n) for n in (1, 2, 3, 4)] == [
        timedelta(milliseconds=200),
        timedelta(milliseconds=500),
        SECOND,
        SECOND,
    ]


def test_a_short_interval_is_never_exceeded():
    state = PhaseState(Phase.RELEASING, NOON)
    assert [look(state, quiet=n, every=timedelta(milliseconds=300)) for n in (1, 2, 3)] == [
        timedelta(milliseconds=200),
        timedelta(milliseconds=300),
        timedelta(milliseconds=300),
    ]


def test_back_in_llm_it_looks_until_the_language_model_answers():
    fresh = PhaseState(Phase.LLM, NOON - SECOND)
    assert look(fresh, quiet=3) == SECOND
    ready = PhaseState(Phase.LLM, NOON - SECOND, llm_ready=True, llm_checked_at=NOON)
    assert look(ready, quiet=3) is None
    long_ago = PhaseState(Phase.LLM, NOON - timedelta(seconds=181))
    assert look(long_ago, quiet=3) is None


@pytest.mark.parametrize(
    ("state", "hold_until", "expected"),
    [
        (PhaseState(Phase.LLM, NOON - timedelta(seconds=590), llm_ready=True), None, 10),
        (PhaseState(Phase.LLM, NOON - timedelta(seconds=569), llm_ready=True), None, None),  # after the next tick
        (PhaseState(Phase.LLM, NOON - timedelta(seconds=600), llm_ready=True), None, None),  # passed
        (
            PhaseState(Phase.LLM, NOON - timedelta(seconds=590), retry_after=NOON + 20 * SECOND, llm_ready=True),
            None,
            20,
        ),
        (PhaseState(Phase.LLM, NOON - timedelta(seconds=590), llm_ready=True), NOON + 25 * SECOND, 25),
        (PhaseState(Phase.AUDIO, NOON - timedelta(seconds=598)), None, 2),
        (PhaseState(Phase.ERROR, NOON, retry_after=NOON + 29 * SECOND), None, 29),
        (PhaseState(Phase.ERROR, NOON, retry_after=NOON + 30 * SECOND), None, None),
        (PhaseState(Phase.ERROR, NOON), None, None),
    ],
)
def test_a_stored_time_before_the_next_tick_is_looked_at_when_it_comes(state, hold_until, expected):
    found = look(state, hold_until=hold_until)
    assert found == (None if expected is None else timedelta(seconds=expected))
