"""What went wrong with workers elsewhere, on real ones: restarts in a drain, shared connections, a Redis that is silent."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import redis
from phase_world import STAGES
from ports import free_port
from sqlalchemy import text
from work_bench import sharing, work_bench

from voxint.cli.main import main
from voxint.gpu_phase import queue
from voxint.gpu_phase.model import Cut, Lane, Phase
from voxint.recordings.errors import AttemptFailed, ClaimLost
from voxint.work.names import LANE_QUEUE
from voxint.work.runner import work_once

pytestmark = pytest.mark.timeout(400)  # real workers start slowly on a busy machine


@pytest.fixture
def bench(processes, database_url, redis_url, tmp_path):
    with work_bench(processes, database_url, redis_url, tmp_path) as made:
        yield made


def put_phase(bench, phase, lease):
    with bench.parts.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO gpu_phase (phase, phase_since, lease_id) VALUES (:phase, voxint_now(), :lease)"),
            {"phase": phase, "lease": lease},
        )


def queued_post_work(bench):
    with bench.parts.engine.begin() as connection:
        run = connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at, stage)"
                " VALUES ('plain', 's', 'file', 'f', voxint_now(), 'enhance_match') RETURNING id"
            )
        ).scalar_one()
        connection.execute(
            text(
                "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                " VALUES (:run, 'enhance_match', 'post', voxint_now(), voxint_now())"
            ),
            {"run": run},
        )


def test_a_worker_that_is_restarted_in_a_drain_begins_nothing(bench, eventually):
    """Fault 11: what may begin stands in the database, not in the worker, and is read when a stage is to start."""
    bench.environ |= sharing(bench.environ)
    put_phase(bench, "draining", "b7c1")
    bench.add("plain")
    queued_post_work(bench)
    first = bench.worker(2, name="first")
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:

        def all_taken():
            return not any(client.llen(name) for name in LANE_QUEUE.values())

        for name in ("first", "second"):
            for lane in Lane:
                bench.parts.publisher.wake_lane(lane, 4)
            eventually(lambda: "ready." in bench.processes.log(name).read_text(), 60)  # noqa: B023 - called at once
            eventually(all_taken, 60, "the wake-ups were not taken")
            if name == "first":
                bench.processes.end(first)
                bench.worker(2, name="second")
    # Asked to stop, a worker answers what it has taken first: then nothing can begin any more.
    for process in bench.processes.started:
        bench.processes.end(process)
    assert bench.stages() == []
    assert bench.rows("SELECT state, attempts FROM work_item") == [("queued", 0)] * 2


def test_children_never_share_the_connection_that_their_parent_had(bench, eventually):
    """Fault 41: the database is used before the fork; four children then do 240 short pieces of work."""
    runs = [bench.add("plain") for _ in range(40)]
    worker = bench.worker(4, USED_BEFORE_THE_FORK="1")
    bench.wake(16)
    eventually(lambda: bench.done(*runs), 100, "the recordings were not worked off")
    assert worker.poll() is None
    log = bench.processes.log("worker").read_text()
    assert "used before the fork" in log
    assert "Traceback" not in log
    assert "rror" not in log.replace("0 errors", "")
    assert len({line.split()[-1] for line in bench.stage_log.read_text().splitlines()}) > 1, "several children worked"


@pytest.mark.parametrize("how", ["away", "silent"])
def test_status_and_requests_do_not_need_redis(bench, monkeypatch, capsys, tmp_path, how):
    """Fault 14: Redis is stopped, or accepts and says nothing. Each command answers in seconds, and its effect stands."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if how == "silent" else free_port()
        settings = sharing(bench.environ, HOME=str(tmp_path), REDIS_URL=f"redis://127.0.0.1:{port}/0")
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        began = time.monotonic()
        assert main(["gpu-phase", "release"]) == 0
        assert main(["gpu-phase", "status"]) == 0
        assert time.monotonic() - began < 30
    assert "release" in capsys.readouterr().out
    assert bench.rows("SELECT kind FROM gpu_phase_request WHERE consumed_at IS NULL") == [("release",)]


@pytest.mark.parametrize("error", [AttemptFailed("whisper closed the connection"), ConnectionResetError(), ClaimLost()])
def test_a_stage_whose_service_was_stopped_under_it_has_used_no_attempt(bench, error):
    """Fault 30: the second release stops whisper in the middle of an answer; the stage's own end changes nothing."""
    bench.environ |= sharing(bench.environ)
    put_phase(bench, "draining", "b7c1")
    bench.add("plain")
    with bench.parts.engine.begin() as connection:
        connection.execute(text("UPDATE work_item SET kind = 'transcribe', begun = true"))
    store = bench.parts.phase_store

    def cut_under_it(claim, heart):
        loaded = store.load()
        before = loaded.stored.state
        assert before.phase is Phase.DRAINING
        with bench.parts.engine.begin() as connection:
            queue.cut(connection, loaded.now, STAGES, Cut().blamed, 3)
        raise error

    gate = bench.parts.gate
    gate._policy = replace(gate._policy, enabled=True)
    claim = work_once(gate, Lane.GPU, cut_under_it, every=timedelta(seconds=5), limit=timedelta(seconds=60))
    assert claim is not None
    assert bench.rows("SELECT kind, state, attempts, error FROM work_item") == [("transcribe", "queued", 0, None)]
    assert bench.rows("SELECT outcome FROM stage_execution") == [("cut",)]
    assert bench.rows("SELECT status, error FROM run") == [("queued", None)]
