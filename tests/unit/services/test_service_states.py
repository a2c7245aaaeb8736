from __future__ import annotations

import pytest

from voxint.gpu_phase.model import Condition
from voxint.services.states import engine_condition, not_ready_because, together

S, R, U = Condition.STOPPED, Condition.RUNNING, Condition.UNKNOWN


@pytest.mark.parametrize(
    ("word", "condition"),
    [
        ("created", S),
        ("exited", S),
        ("dead", S),
        ("removing", S),
        ("running", R),
        ("paused", R),
        ("restarting", R),
        ("stopping", R),
        (" Running ", R),
        ("", U),
        ("hibernating", U),
    ],
)
def test_an_engines_word_is_read_for_what_it_means_to_the_gpu(word, condition):
    assert engine_condition(word) is condition


@pytest.mark.parametrize(
    ("conditions", "condition"),
    [
        ([], S),
        ([S, S], S),
        ([S, U], U),
        ([U, R], R),
        ([S, R], R),
    ],
)
def test_twins_are_stopped_only_together(conditions, condition):
    assert together(conditions) is condition


@pytest.mark.parametrize(
    "body",
    [
        {"status": "ok", "service": "whisper", "device": "cuda"},
        {"status": "OK"},
        {"status": "healthy"},
        {"message": "hello"},
        {"status": 200},
        {"ready": True, "error": None},
        {},
        [],
        "OK",
        None,
        True,
    ],
)
def test_bodies_that_do_not_say_no(body):
    assert not_ready_because(body) is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"status": "loading"}, "status is 'loading'"),
        (
            {"status": "no weights", "detail": "run voxint models fetch"},
            "status is 'no weights': 'run voxint models fetch'",
        ),
        ({"status": "ok", "model_loaded": False}, "model_loaded is false"),
        ({"ready": False}, "ready is false"),
        ({"status": False}, "status is false"),
        ({"error": {"message": "out of memory"}}, "error: out of memory"),
        ({"error": "out of memory"}, "error: out of memory"),
        ({"error": {"code": 503}}, "error: {'code': 503}"),
    ],
)
def test_bodies_that_say_no(body, why):
    assert not_ready_because(body) == why
