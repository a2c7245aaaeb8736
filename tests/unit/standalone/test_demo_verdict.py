from dataclasses import replace

import pytest

from voxint.standalone.demo.verdict import TURN, Facts, last_line, problems

GOOD = Facts(3, [], TURN, [], 96.2, 0.041, 2)


def test_a_good_one_has_no_problem_and_this_last_line():
    assert problems(GOOD) == ()
    assert last_line(GOOD) == "demo: 3 recordings done, language model -> audio -> language model, WER 4.1 %, 96 s"


def test_the_users_own_recordings_have_no_error_rate():
    own = Facts(1, [], TURN, [], 10)
    assert problems(own) == ()
    assert last_line(own) == "demo: 1 recording done, language model -> audio -> language model, 10 s"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"not_done": ["garden: the decoder failed"]}, "garden"),
        ({"hands": ("language model",)}, "the GPU went language model, and not"),
        ({"hands": ()}, "nowhere"),
        ({"hands": ("language model", "audio")}, "the GPU went"),
        ({"hands": ("audio", "language model")}, "the GPU went"),
        ({"faults": ["whisper was there"]}, "whisper was there"),
        ({"word_error_rate": 0.1501}, "15.0 %"),
        ({"word_error_rate": float("nan")}, "word error rate"),
        ({"right_speakers": 1}, "number of speakers"),
    ],
)
def test_each_thing_that_is_not_as_it_should_be_is_told(change, words):
    (problem,) = problems(replace(GOOD, **change))
    assert words in problem


def test_limits_are_inclusive():
    assert problems(replace(GOOD, word_error_rate=0.15)) == ()


def test_more_than_one_turn_is_fine():
    assert problems(replace(GOOD, hands=(*TURN, "audio", "language model"))) == ()


def test_what_is_not_done_is_not_counted():
    assert last_line(replace(GOOD, not_done=["x"])).startswith("demo: 2 recordings done")
