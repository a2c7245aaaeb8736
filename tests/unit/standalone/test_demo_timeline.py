import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from voxint.gpu_phase.model import Cause, Phase
from voxint.gpu_phase.store import Event
from voxint.standalone.demo import timeline
from voxint.standalone.demo.timeline import AUDIO, LANGUAGE_MODEL, Stay

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def event(seconds, phase, cause=Cause.IDLE):
    return Event(at(seconds), None, phase, cause, None, None, None, None, None, None, None)


TURN = [
    event(0, Phase.LLM),
    event(10, Phase.DRAINING_POST),
    event(11, Phase.ACQUIRING),
    event(13, Phase.STARTING_SERVICES),
    event(15, Phase.AUDIO),
    event(40, Phase.DRAINING),
    event(41, Phase.STOPPING_SERVICES),
    event(43, Phase.RELEASING),
    event(45, Phase.LLM),
]


def stay(side, since, until, service="s", pid=1):
    return Stay(side, service, pid, at(since), None if until is None else at(until))


GOOD = [
    stay(LANGUAGE_MODEL, -5, 12.5),
    stay(AUDIO, 13.5, 42, pid=2),
    stay(AUDIO, 13.6, 42.5, pid=3),
    stay(LANGUAGE_MODEL, 43.5, None, pid=4),
]


def test_the_intervals_fill_the_time_without_a_gap():
    found = timeline.intervals(TURN, at(2), at(50))
    assert [each.phase for each in found] == [event.to_phase for event in TURN]
    assert found[0].since == at(2)
    assert found[-1].until == at(50)
    assert all(one.until == two.since for one, two in pairwise(found))
    assert sum(each.seconds for each in found) == pytest.approx(48)


def test_what_was_over_before_or_began_after_is_left_out():
    found = timeline.intervals(TURN, at(20), at(30))
    assert [(each.phase, each.seconds) for each in found] == [(Phase.AUDIO, 10)]


def test_a_row_of_the_file():
    row = timeline.intervals(TURN, at(10), at(10.5))[0].to_document()
    assert row == {
        "phase": "draining_post",
        "since": "2026-11-30T12:00:10.000Z",
        "until": "2026-11-30T12:00:10.500Z",
        "seconds": 0.5,
        "cause": "idle",
    }


def test_no_events_give_no_intervals():
    assert timeline.intervals([], at(0), at(1)) == ()


def test_the_hands_of_a_turn():
    assert timeline.hands(timeline.intervals(TURN, at(2), at(50))) == (LANGUAGE_MODEL, AUDIO, LANGUAGE_MODEL)
    assert timeline.hands(timeline.intervals(TURN, at(2), at(14))) == (LANGUAGE_MODEL,)


def test_a_turn_as_it_should_be_has_no_fault():
    assert timeline.faults(GOOD, TURN, at(50)) == ()


WRONG = {
    "both at once": [*GOOD, stay(LANGUAGE_MODEL, 20, 21, "llm", 9)],
    "the language model stayed too long": [stay(LANGUAGE_MODEL, -5, 13.2, "llm", 9), *GOOD[1:]],
    "audio came too soon": [GOOD[0], stay(AUDIO, 12.9, 42, "whisper", 9), *GOOD[2:]],
    "audio stayed too long": [*GOOD[:2], stay(AUDIO, 13.6, 43.2, "whisper", 9), GOOD[3]],
    "the language model came back too soon": [*GOOD[:3], stay(LANGUAGE_MODEL, 42.9, None, "llm", 9)],
    "audio in llm": [*GOOD, stay(AUDIO, 46, 47, "whisper", 9)],
    "a process that never said it had gone": [*GOOD[:1], stay(AUDIO, 13.5, None, "whisper", 9), *GOOD[2:]],
}


@pytest.mark.parametrize("what", WRONG)
def test_what_runs_on_the_wrong_side_is_found_and_named(what):
    found = timeline.faults(WRONG[what], TURN, at(50))
    assert any("process 9" in fault for fault in found), found


def test_a_killed_process_is_taken_to_be_gone_when_the_lock_let_the_other_side_in():
    killed = [stay(AUDIO, 13.5, None, "whisper", 9), stay(LANGUAGE_MODEL, 43.5, None, "llm", 4)]
    done = timeline.settled(killed, frozenset({4}))
    assert done[0].until == at(43.5)
    assert done[1].until is None


def test_a_killed_process_that_nobody_followed_stays_open():
    assert timeline.settled([stay(AUDIO, 13.5, None)], frozenset())[0].until is None


def lines(*entries):
    return "\n".join(
        json.dumps(
            {"event": kind, "side": side, "service": service, "pid": pid, "at": at(when).isoformat(), "request": None}
        )
        for when, kind, side, service, pid in entries
    )


def test_the_ledger_becomes_stays():
    text = lines(
        (0, "start", "llm", "language_model", 1),
        (1, "request_start", "llm", "language_model", 1),
        (2, "request_end", "llm", "language_model", 1),
        (3, "end", "llm", "language_model", 1),
        (4, "start", "audio", "whisper", 2),
    )
    found = timeline.stays(text + "\nnot json\n[]\n{}\n", at(0))
    assert found == (
        Stay(LANGUAGE_MODEL, "language_model", 1, at(0), at(3), 1),
        Stay(AUDIO, "whisper", 2, at(4), None, 0),
    )
    assert timeline.stays(text, at(3.5)) == found[1:]


def test_a_number_that_is_given_out_again_is_another_process():
    text = lines((0, "start", "audio", "whisper", 1), (5, "start", "llm", "language_model", 1))
    assert [(s.side, s.until) for s in timeline.stays(text, at(0))] == [(AUDIO, None), (LANGUAGE_MODEL, None)]
