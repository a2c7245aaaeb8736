"""When the queue will be worked off: what is told from past turns, and that nothing is told where nobody can know."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phase_views import NOON, state_of, view_of

from voxint.console.estimate import Habits, habits, next_switch, queue_done_at, turns, without_turns, words
from voxint.gpu_phase.model import Cause, Phase, Request, RequestKind
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import Event

USUAL = Habits(there=60, back=30, gpu=100, post=40)
POLICY = Policy(min_dwell=timedelta(seconds=600), max_audio=timedelta(seconds=1000))
LONG_AGO = timedelta(hours=1)
WAY = [Phase.DRAINING_POST, Phase.ACQUIRING, Phase.STARTING_SERVICES, Phase.AUDIO]
WAY_BACK = [Phase.DRAINING, Phase.STOPPING_SERVICES, Phase.RELEASING, Phase.LLM]


def happened(*steps):
    """Changes of phase, each so many seconds after the last one; it began in llm."""
    at, before, found = NOON - timedelta(days=1), Phase.LLM, []
    for seconds, after in steps:
        at += timedelta(seconds=seconds)
        found.append(Event(at, before, after, next(iter(Cause)), None, seconds, None, 0, 0, 0, 0))
        before = after
    return found


def turn(there, back, audio=500):
    """One turn whose ways took so long, in even steps."""
    return [
        *[(there / 3 if number else 900, phase) for number, phase in enumerate(WAY)],
        *[(back / 3 if number else audio, phase) for number, phase in enumerate(WAY_BACK)],
    ]


def seconds_until(view, usual=USUAL):
    at = queue_done_at(view, usual)
    return None if at is None else (at - view.now).total_seconds()


def test_a_way_lasts_from_leaving_one_side_to_the_other():
    there, back = turns(happened(*turn(60, 30), *turn(90, 45)))
    assert there == pytest.approx([60, 90])
    assert back == pytest.approx([30, 45])


def test_a_turn_that_came_to_nothing_is_no_way():
    refused = [(900, Phase.ACQUIRING), (10, Phase.LLM)]
    failed = [(900, Phase.ACQUIRING), (5, Phase.STARTING_SERVICES), (300, Phase.STOPPING_SERVICES), (5, Phase.ERROR)]
    there, back = turns(happened(*refused, *failed))
    assert (there, back) == ([], [])
    assert turns(happened(*refused, *turn(60, 30))) == (pytest.approx([60]), pytest.approx([30]))


def test_what_is_usual_is_the_middle_and_not_the_mean():
    usual = habits(happened(*turn(60, 30), *turn(62, 31), *turn(900, 600)), [(100, 40), (110, 42), (9000, 41)])
    assert usual == Habits(pytest.approx(62), pytest.approx(31), 110, 41)


@pytest.mark.parametrize(("events", "took"), [([], [(100, 40)]), (happened(*turn(60, 30)), [])])
def test_without_a_past_nothing_is_usual(events, took):
    assert habits(events, took) is None


def test_a_window_that_has_not_ended_yet_gives_the_way_there_for_both():
    usual = habits(happened(*turn(60, 30)[:4]), [(100, 40)])
    assert (usual.there, usual.back) == (pytest.approx(60), pytest.approx(60))


def test_without_sharing_there_are_no_ways():
    assert without_turns([]) is None
    assert without_turns([(100, 40), (120, 60)]) == Habits(0, 0, 110, 50)
    off = view_of(None, gpu=(2, 1), post=(1, 0), policy=Policy(enabled=False))
    assert seconds_until(off, without_turns([(100, 40)])) == 3 * 100 + 4 * 40


def test_in_llm_the_next_turn_comes_after_min_dwell():
    view = view_of(
        Phase.LLM, gpu=(3, 0), policy=POLICY, state=state_of(Phase.LLM, age=timedelta(seconds=200), llm_ready=True)
    )
    # 400 s until min dwell is over, the way there, the recordings one after another, the way back, then the mending.
    assert seconds_until(view) == 400 + 60 + 3 * 100 + 30 + 3 * 40
    waited = replace(view, state=state_of(Phase.LLM, age=LONG_AGO))
    assert seconds_until(waited) == 60 + 3 * 100 + 30 + 3 * 40


def test_what_does_not_fit_into_one_window_waits_for_the_next():
    view = view_of(Phase.LLM, gpu=(25, 0), policy=POLICY, state=state_of(Phase.LLM, age=LONG_AGO))
    between = 30 + 600 + 60
    assert seconds_until(view) == 60 + 25 * 100 + 2 * between + 30 + 25 * 40


def test_in_audio_the_work_goes_on_at_once():
    assert seconds_until(view_of(Phase.AUDIO, gpu=(1, 1), policy=POLICY)) == 2 * 100 + 30 + 2 * 40


@pytest.mark.parametrize("phase", [Phase.DRAINING_POST, Phase.ACQUIRING, Phase.STARTING_SERVICES])
def test_on_the_way_there_the_way_is_left(phase):
    assert seconds_until(view_of(phase, gpu=(1, 0), policy=POLICY)) == 60 + 100 + 30 + 40


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.STOPPING_SERVICES, Phase.RELEASING])
def test_on_the_way_back_a_whole_stay_in_llm_comes_first(phase):
    assert seconds_until(view_of(phase, gpu=(1, 0), policy=POLICY)) == 30 + 600 + 60 + 100 + 30 + 40
    assert seconds_until(view_of(phase, post=(2, 0), policy=POLICY)) == 30 + 2 * 40


def test_with_the_language_model_s_work_alone_no_turn_is_counted():
    assert seconds_until(view_of(Phase.LLM, post=(2, 1), policy=POLICY)) == 3 * 40


@pytest.mark.parametrize(
    "view",
    [
        view_of(Phase.ERROR, gpu=(1, 0)),
        view_of(Phase.LLM, gpu=(1, 0), ticked=LONG_AGO),
        view_of(None, gpu=(1, 0)),
        view_of(Phase.LLM, gpu=(1, 0), paused_at=NOON),
    ],
    ids=["error", "task stopped", "no row", "paused"],
)
def test_where_nobody_can_tell_nothing_is_told(view):
    assert queue_done_at(view, USUAL) is None
    assert words(view, USUAL, UTC) == "unknown; 1 queued"


def test_without_a_past_it_is_unknown():
    assert words(view_of(Phase.LLM, gpu=(6, 0)), None, UTC) == "unknown; 6 queued"


def test_the_words_name_the_hour_and_another_day():
    usual = replace(USUAL, gpu=1_000)
    view = view_of(Phase.AUDIO, gpu=(6, 0), policy=replace(POLICY, max_audio=timedelta(hours=9)))
    assert words(view, usual, UTC) == "about 13:44; 6 queued"
    assert words(view, usual, timezone(timedelta(hours=9))) == "about 22:44; 6 queued"
    # Fifteen hours of work are two windows of nine, with a stay in llm between them.
    assert words(view, replace(usual, gpu=9_000), UTC) == "about 03:16 on 2026-12-01; 6 queued"
    assert words(view_of(Phase.LLM), USUAL, UTC) == ""


@given(
    phase=st.sampled_from([each for each in Phase if each is not Phase.ERROR]),
    gpu=st.tuples(st.integers(0, 500), st.integers(0, 5)),
    post=st.tuples(st.integers(0, 500), st.integers(0, 5)),
    lasts=st.lists(st.floats(0, 1e5), min_size=4, max_size=4),
)
def test_the_end_is_never_before_now_and_more_work_never_ends_earlier(phase, gpu, post, lasts):
    usual = Habits(*lasts)
    at = queue_done_at(view_of(phase, gpu=gpu, post=post), usual)
    more = queue_done_at(view_of(phase, gpu=(gpu[0] + 1, gpu[1]), post=post), usual)
    assert NOON <= at <= more


def request(kind):
    return Request(id=1, kind=kind, requested_at=NOON, requested_by="Anna", made_in=Phase.LLM)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (view_of(None), ""),
        (view_of(Phase.LLM, policy=Policy(enabled=False)), ""),
        (view_of(Phase.LLM), "once a recording is queued"),
        (view_of(Phase.LLM, paused_at=NOON), "once the queue goes on"),
        (view_of(Phase.LLM, gpu=(1, 0), state=state_of(Phase.LLM, age=timedelta(days=1))), "now due"),
        (view_of(Phase.LLM, request=request(RequestKind.AUDIO_NOW)), "as soon as the phase task looks"),
        (view_of(Phase.DRAINING), "under way"),
        (view_of(Phase.ERROR, state=state_of(Phase.ERROR, retry_after=NOON + timedelta(minutes=3))), "tried again at "),
        (view_of(Phase.AUDIO), "once the queue is empty, at "),
    ],
)
def test_the_next_switch_in_words(view, said):
    found = next_switch(view, UTC)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_the_next_switch_names_what_binds():
    view = view_of(Phase.LLM, gpu=(1, 0), policy=POLICY, state=state_of(Phase.LLM, age=timedelta(seconds=0)))
    assert next_switch(view, UTC) == "at 12:10:00 UTC at the earliest (min dwell)"
    assert isinstance(queue_done_at(view, USUAL), datetime)
