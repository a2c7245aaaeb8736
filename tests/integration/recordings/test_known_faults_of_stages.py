"""What went wrong with stages elsewhere: limits that a broad `except` swallowed, transactions open during a call."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from scripted_services import Raw
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from voxint.gpu_phase.model import Lane
from voxint.llm.client import LlmClient
from voxint.recordings.stages import prepare
from voxint.work.runner import work_once

IDLE_IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
)


def limit_inside(*_args, **_named):
    raise SoftTimeLimitExceeded


@pytest.mark.parametrize(
    ("kind", "place", "name"),
    [("prepare", prepare, "decode"), ("enhance_match", LlmClient, "chat")],
    ids=["in the middle of a file", "in the part that a recording can do without"],
)
def test_a_limit_that_fires_inside_a_stage_ends_it(world, make_wav, monkeypatch, kind, place, name):
    """Fault 17: it is no answer of the language model's, and no broken file: the attempt ends, and the claim with it."""
    run = world.runs.add(make_wav())
    with monkeypatch.context() as patch:
        patch.setattr(place, name, limit_inside)
        assert world.finish()[-1] == kind
    item = world.item(run.id, kind)
    assert (item.state, item.claim_token, item.attempts) == ("queued", None, 1)
    assert "SoftTimeLimitExceeded" in item.error
    assert world.runs.show(run.id).executions[-1].outcome == "failed"
    assert list(world.runs.get(run.id).folder.glob("*.part")) == []
    world.shift(30)
    assert world.finish()[0] == kind
    assert world.runs.get(run.id).status == "done"


def test_no_transaction_is_open_while_a_stage_waits_for_a_model(world, make_wav):
    """Fault 39: looked at from inside every request that a recording makes."""
    looked, lock = [], threading.Lock()

    def watched(name):
        def answer(request):
            with world.engine.connect() as connection:
                found = connection.execute(text(IDLE_IN_TRANSACTION)).scalar_one()
            with lock:
                looked.append((name, found))
            return world.services._usual(name, request)

        return answer

    for name in ("whisper", "pyannote", "titanet", "language_model"):
        world.services.always[name] = watched(name)
    run = world.runs.add(make_wav())
    # No heartbeat in this time: between its two statements it would be seen here.
    for lane in (*[Lane.GPU] * 4, *[Lane.POST] * 2):
        work_once(world.parts.gate, lane, world.parts.work, every=timedelta(minutes=5), limit=timedelta(minutes=10))
    assert world.runs.get(run.id).status == "done"
    assert {name for name, _ in looked} == {"whisper", "pyannote", "titanet", "language_model"}
    assert [(name, found) for name, found in looked if found] == []


def strict(world):
    """From now on this database's server cuts who idles in a transaction for 2 s, whatever the session's default is."""
    with world.engine.begin() as connection:
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '2s'"))
    for engine in (world.engine, world.parts.engine):
        engine.dispose()


def test_a_call_outlasts_what_the_server_allows_an_idle_transaction(world, make_wav):
    """Fault 39: the server cuts who idles in a transaction for 2 s, and the model takes longer than that."""
    strict(world)
    with world.engine.connect() as connection:
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "2s"
    usual = world.services._usual

    def slow(request):
        threading.Event().wait(3)
        return usual("whisper", request)

    world.services.always["whisper"] = slow
    run = world.runs.add(make_wav())
    world.finish()
    assert world.runs.get(run.id).status == "done"
    assert [each.attempt for each in world.runs.show(run.id).executions] == [1] * 6


def test_the_twin_that_waits_in_a_transaction_is_cut(world):
    strict(world)
    with contextlib.closing(world.engine.connect()) as held:
        held.execute(text("SELECT 1"))
        threading.Event().wait(4)
        with pytest.raises(DBAPIError):
            held.execute(text("SELECT 1"))


def test_half_an_answer_is_an_attempt_and_the_stage_goes_on_where_it_was(world, make_wav):
    """Fault 30: whisper ends the connection with no byte, and in the middle of its answer."""
    world.services.script["whisper"] = [Raw(drop=True), Raw(200, b'{"segments": [], "language": "en"}', half=True)]
    run = world.runs.add(make_wav())
    for later in (30, 60):
        world.work("gpu", 4)
        assert world.item(run.id, "transcribe").state == "queued"
        world.shift(later)
    world.finish()
    assert world.runs.get(run.id).status == "done"
    assert [each.kind for each in world.runs.show(run.id).executions].count("prepare") == 1
