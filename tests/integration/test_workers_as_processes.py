"""The queue with real Celery workers: redelivery, kills, floods, stalls. The stages are stand-ins (see the support file)."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil
import pytest
import redis
from held_transaction import held_transaction
from sqlalchemy import text
from work_bench import sharing, work_bench

from voxint.db.engine import make_engine
from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.work.app import make_app
from voxint.work.names import LANE_QUEUE, TICK_QUEUE, TICK_TASK, WORK_TASK

pytestmark = pytest.mark.timeout(400)  # real workers start slowly on a busy machine


@pytest.fixture
def bench(processes, database_url, redis_url, tmp_path):
    with work_bench(processes, database_url, redis_url, tmp_path) as made:
        yield made


def test_recordings_go_through_all_stages_once(bench, eventually):
    runs = [bench.add("plain") for _ in range(20)]
    bench.worker()
    bench.wake()
    eventually(lambda: bench.done(*runs), 40, "the recordings were not worked off")
    assert sorted(bench.stages()) == sorted(set(bench.stages()))
    assert len(bench.stages()) == 20 * 6


def test_a_long_stage_is_not_run_again_by_redelivery(bench, eventually):
    """Fault 1, with a visibility time-out of 5 s against a stage of 12 s."""
    run = bench.add("sleep 12 stage=transcribe")
    for n in range(2):
        bench.worker(1, name=f"worker-{n}", VISIBILITY_TIMEOUT_SECONDS="5")
    bench.wake()
    eventually(lambda: bench.done(run), 60, "the recording was not done")
    assert bench.stages().count((run, "transcribe")) == 1
    assert bench.rows("SELECT count(*) FROM stage_result WHERE kind = 'transcribe'") == [(1,)]


def test_a_copy_that_lost_its_claim_cannot_overwrite_the_newer_result(bench, eventually):
    """The worker hangs past the heartbeat limit, another takes over and finishes, then the first one wakes up."""
    run = bench.add("deaf 5 stage=transcribe")
    first = bench.worker(1, name="first")
    bench.wake(1)
    eventually(lambda: (run, "transcribe") in bench.stages(), 30, "the stage did not begin")
    children = psutil.Process(first.pid).children()
    for child in children:
        child.suspend()
    bench.worker(1, name="second")
    eventually(lambda: bench.parts.gate.reap() == 1, 10, "the dead work was not given back")
    bench.wake()
    eventually(lambda: bench.done(run), 40, "the second worker did not finish")
    (newest,) = bench.rows("SELECT data->>'token' AS token FROM stage_result WHERE kind = 'transcribe'")
    for child in children:
        child.resume()
    eventually(lambda: bench.stages("end").count((run, "transcribe")) == 2, 15, "the first copy did not end")
    time.sleep(0.5)
    assert bench.rows("SELECT data->>'token' AS token FROM stage_result WHERE kind = 'transcribe'") == [newest]
    assert bench.rows("SELECT count(*) FROM stage_execution WHERE kind = 'transcribe' AND outcome = 'done'") == [(1,)]


def test_a_recording_that_kills_its_worker_fails_after_three_times_and_others_finish(bench, eventually):
    """Fault 8: the count is raised before the work starts, and survives the process."""
    killer = bench.add("exit stage=prepare")
    others = [bench.add("plain") for _ in range(2)]
    bench.worker(1)
    eventually(lambda: _swept(bench) and bench.status(killer).status == "failed", 60, "it was tried for ever")
    assert bench.status(killer).error == "prepare: the worker died 3 times while it worked on this recording"
    assert bench.stages().count((killer, "prepare")) == 3
    eventually(lambda: _swept(bench) and bench.done(*others), 30, "the others did not finish")


def _swept(bench):
    """What beat's sweep does every half minute, at once."""
    bench.parts.gate.reap()
    bench.wake()
    return True


def test_kill_of_the_pool_child_gives_the_work_back(bench, eventually):
    """Fault 7."""
    run = bench.add("sleep 4 stage=transcribe")
    worker = bench.worker(1)
    bench.wake()
    eventually(lambda: (run, "transcribe") in bench.stages(), 30)
    for child in psutil.Process(worker.pid).children():
        child.kill()
    eventually(lambda: _swept(bench) and bench.done(run), 40, "the work was not given back")
    assert bench.stages().count((run, "transcribe")) == 2
    assert bench.stages().count((run, "prepare")) == 1, "what is done is not done again"


def test_busy_workers_give_the_work_of_the_dead_back(bench, eventually):
    """Sharing is off, so no tick; every worker is at work, so nobody takes the sweep's message; beat is not even there."""
    dead, long = bench.add("sleep 60 stage=transcribe"), bench.add("sleep 40 stage=prepare")
    doomed = bench.worker(1, name="doomed")
    bench.wake(1)
    eventually(lambda: (dead, "transcribe") in bench.stages(), 40, "the stage did not begin")
    bench.processes.end(doomed, signal.SIGKILL)
    busy = bench.worker(1, name="busy")
    bench.wake(1)
    eventually(lambda: (long, "prepare") in bench.stages(), 40, "the busy worker did not begin")
    state = "SELECT state FROM work_item WHERE run_id = :run AND kind = 'transcribe'"
    eventually(lambda: bench.rows(state, run=dead) == [("queued",)], 30, "the dead work is still running, it says")
    assert (long, "prepare") not in bench.stages("end")
    bench.processes.end(busy, signal.SIGKILL)


def test_sigterm_lets_the_stage_finish_and_it_is_not_run_again(bench, eventually):
    """Fault 18."""
    run = bench.add("sleep 3 stage=transcribe")
    worker = bench.worker(1)
    bench.wake()
    eventually(lambda: (run, "transcribe") in bench.stages(), 30)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(20) == 0
    assert (run, "transcribe") in bench.stages("end")
    bench.worker(1)
    bench.wake()
    eventually(lambda: bench.done(run), 30)
    assert bench.stages().count((run, "transcribe")) == 1


def test_flushall_between_stages_loses_nothing(bench, eventually):
    """Fault 13: beat's sweep finds the queued work by the database, without a person."""
    runs = [bench.add("sleep 1 stage=transcribe") for _ in range(3)]
    bench.worker(2)
    bench.beat()
    bench.wake()
    eventually(lambda: len(bench.stages()) > 3, 30)
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
        client.flushall()
    eventually(lambda: bench.done(*runs), 60, "work was lost with the messages")
    assert sorted(bench.stages()) == sorted(set(bench.stages()))


def test_not_now_leaves_everything_runnable(bench, eventually):
    """Fault 10 b: refused connections use no attempt, and nothing is done or failed by them."""
    runs = [bench.add("not-now stage=transcribe") for _ in range(5)]
    bench.worker(2)
    bench.wake()
    eventually(lambda: len(bench.stages()) >= 20, 40)
    items = bench.rows("SELECT kind, state, attempts FROM work_item WHERE kind = 'transcribe' AND state <> 'running'")
    assert {(item.state, item.attempts) for item in items} == {("queued", 0)}
    assert not any(bench.status(run).status in {"done", "failed"} for run in runs)


def test_a_lasting_failure_ends_the_run_at_once_and_a_passing_one_is_tried_again(bench, eventually):
    lasting, passing = bench.add("fail stage=prepare"), bench.add("raise stage=prepare")
    bench.worker(2)
    bench.wake()
    eventually(lambda: bench.status(lasting).status == "failed", 30)
    assert bench.status(lasting).error == "no audio track"
    assert bench.stages().count((lasting, "prepare")) == 1
    eventually(lambda: _swept(bench) and bench.status(passing).status == "failed", 40)
    assert bench.status(passing).error == "prepare: connection closed in the middle of the answer"
    assert bench.stages().count((passing, "prepare")) == 3


def test_a_closed_gate_is_quiet(bench, eventually):
    """Fault 9: fifty recordings wait in llm. Neither Redis nor the database is asked in a loop."""
    bench.environ |= sharing(bench.environ)
    for _ in range(50):
        bench.add("plain")
    with bench.parts.engine.begin() as connection:
        connection.execute(text("INSERT INTO gpu_phase (phase, phase_since) VALUES ('llm', voxint_now())"))
    worker = bench.worker(2)
    log = bench.processes.log("worker")
    bench.wake(16)
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
        eventually(lambda: client.llen(LANE_QUEUE[Lane.GPU]) == 0, 60, "the worker does not take its wake-ups")
        time.sleep(11)  # the server's own counts lag by up to ten seconds
        client.config_resetstat()
        before, lines = _transactions(bench), len(log.read_text().splitlines())
        time.sleep(10)
        commands = client.info("stats")["total_commands_processed"]
    assert worker.poll() is None
    assert commands < 150, "an idle worker polls; a hot loop would make thousands"
    assert _transactions(bench) - before < 50
    assert len(log.read_text().splitlines()) - lines <= 2
    assert bench.stages() == []


def _transactions(bench):
    engine = make_engine(bench.environ["DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        found = connection.execute(text(query)).scalar_one()
    engine.dispose()
    return found


def test_an_hour_of_old_ticks_is_one_tick(bench, eventually):
    """Fault 3: 720 messages, some aged, none with an expiry; then the worker starts."""
    bench.environ |= sharing(bench.environ, GPU_PHASE_FOLLOW_UP_SECONDS="0")
    app = make_app(load_settings(bench.environ), publisher=True)
    for _ in range(720):
        app.send_task(TICK_TASK, queue=TICK_QUEUE)
    bench.add("plain")
    bench.gpu_phase()
    log = bench.processes.log("gpu-phase")
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
        eventually(lambda: client.llen(TICK_QUEUE) == 0, 60, "the backlog was not cleared")
    began = bench.rows("SELECT min(at) AS at FROM gpu_phase_event")[0].at
    ticks = log.read_text().count(" tick outcome=")
    took = (bench.parts.phase_store.now() - began).total_seconds()
    assert 1 <= ticks <= took / 2.5 + 1
    assert ticks < 30


def test_two_ticks_at_the_same_instant_are_one(bench, eventually):
    """Fault 5 and 42: two beats, no row yet."""
    bench.environ |= sharing(bench.environ, GPU_PHASE_FOLLOW_UP_SECONDS="0")
    workers = [bench.gpu_phase(name=f"gpu-phase-{n}") for n in range(2)]
    logs = [bench.processes.log(f"gpu-phase-{n}") for n in range(2)]
    eventually(lambda: all("ready." in log.read_text() for log in logs), 30)
    app = make_app(load_settings(bench.environ), publisher=True)
    for _ in range(2):
        app.send_task(TICK_TASK, queue=TICK_QUEUE)
    eventually(lambda: bench.rows("SELECT 1 FROM gpu_phase"), 15)
    time.sleep(1)
    assert bench.rows("SELECT count(*) FROM gpu_phase_event") == [(1,)]
    assert not any("Traceback" in log.read_text() for log in logs)
    assert all(worker.poll() is None for worker in workers)


def test_the_regular_worker_never_takes_a_tick(bench, eventually):
    bench.environ |= sharing(bench.environ)
    app = make_app(load_settings(bench.environ), publisher=True)
    app.send_task(TICK_TASK, queue=TICK_QUEUE)
    bench.worker(1)
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
        for _ in range(2):  # what is its own it takes, and looks for more
            bench.wake(1)
            eventually(lambda: client.llen(LANE_QUEUE[Lane.GPU]) == 0, 60, "the worker does not take its wake-ups")
        assert client.llen(TICK_QUEUE) == 1
    assert bench.rows("SELECT count(*) FROM gpu_phase") == [(0,)]


class RolledBack(Exception):  # noqa: N818 - it is what happened
    """Ends a transaction."""


def test_a_wake_up_before_the_row_is_committed_makes_no_ghost(bench, eventually):
    """Fault 15: the message overtakes the commit, or the row is rolled back."""
    worker = bench.worker(1)
    log = bench.processes.log("worker")
    eventually(lambda: "ready." in log.read_text(), 30)
    with contextlib.suppress(RolledBack), held_transaction(bench.parts.engine) as connection:
        connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at)"
                " VALUES ('plain', 's', 'file', 'f', voxint_now())"
            )
        )
        bench.wake(1)
        with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
            eventually(lambda: client.llen(LANE_QUEUE[Lane.GPU]) == 0, 60, "the worker does not take its wake-ups")
        raise RolledBack
    run = bench.add("plain")
    bench.wake(1)
    eventually(lambda: bench.done(run), 30)
    assert worker.poll() is None
    assert bench.rows("SELECT status FROM run") == [("done",)]


def test_messages_of_unknown_shape_harm_nobody(bench, eventually):
    bench.worker(1)
    app = make_app(load_settings(bench.environ), publisher=True)
    app.send_task(WORK_TASK, kwargs={"lane": "nonsense"}, queue=LANE_QUEUE[Lane.GPU])
    app.send_task(WORK_TASK, kwargs={}, queue=LANE_QUEUE[Lane.GPU])
    run = bench.add("plain")
    bench.wake()
    eventually(lambda: bench.done(run), 30)


def test_media_are_prepared_ahead_in_a_closed_lane_and_wait_there(bench, eventually):
    bench.environ = sharing(bench.environ, GPU_PHASE_PREPARE_AHEAD="true")
    with bench.parts.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO gpu_phase (phase, phase_since, ticked_at) VALUES ('llm', voxint_now(), voxint_now())")
        )
    runs = [bench.add("plain") for _ in range(3)]
    bench.worker()
    bench.wake(1)
    query = "SELECT count(*) FROM work_item WHERE kind = 'transcribe' AND state = 'queued' AND NOT begun"
    eventually(lambda: bench.rows(query) == [(3,)], 40, "the recordings were not prepared")
    assert sorted(bench.stages()) == sorted((run, kind) for run in runs for kind in ("acquire", "prepare"))
