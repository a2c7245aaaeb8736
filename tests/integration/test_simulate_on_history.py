"""`voxint gpu-phase simulate` on a real database: what it reads of the past, and what it says of other settings."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import text

from voxint.cli.main import main
from voxint.db import clock
from voxint.gpu_phase.past import past

RUN = """
INSERT INTO run (title, source, source_kind, status, stage, folder, created_at)
VALUES (:title, 'x', 'file', :status, 'finalize', :title, :at) RETURNING id
"""
ITEM = "INSERT INTO work_item (run_id, kind, lane, state, queued_at, waiting_since) VALUES (:run, :kind, :lane, 'done', :at, :at) RETURNING id"
EXECUTION = """
INSERT INTO stage_execution (work_item_id, run_id, kind, attempt, claim_token, worker, started_at, ended_at, outcome)
VALUES (:item, :run, :kind, 1, :token, 'w', :at, :until, :outcome)
"""
EVENT = "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause, seconds) VALUES (:at, :first, :second, 'x', :seconds)"
SECONDS = {"acquire": 1, "prepare": 2, "transcribe": 90, "diarize_embed": 40, "enhance_match": 30, "finalize": 5}


def recording(connection, title, at, *, status="done", outcome="done"):
    run = connection.execute(text(RUN), {"title": title, "status": status, "at": at}).scalar_one()
    for kind, seconds in SECONDS.items():
        lane = "post" if kind in {"enhance_match", "finalize"} else "gpu"
        item = connection.execute(text(ITEM), {"run": run, "kind": kind, "lane": lane, "at": at}).scalar_one()
        values = {"item": item, "run": run, "kind": kind, "token": f"{title}-{kind}", "at": at, "outcome": outcome}
        connection.execute(text(EXECUTION), values | {"until": at + timedelta(seconds=seconds)})


@pytest.fixture
def history(engine):
    with engine.begin() as connection:
        now = clock.read(connection)
        for number in range(6):
            recording(connection, f"r{number}", now - timedelta(hours=20 - 3 * number))
        recording(connection, "old", now - timedelta(days=30))
        recording(connection, "going on", now - timedelta(hours=1), status="running")
        for first, second, seconds in [
            ("acquiring", "starting_services", 4.0),
            ("acquiring", "starting_services", 6.0),
            ("acquiring", "starting_services", 600.0),
            ("acquiring", "releasing", 999.0),  # a failure says nothing of how long it takes
            ("starting_services", "audio", 30.0),
            ("releasing", "llm", 75.0),
        ]:
            values = {"at": now - timedelta(hours=2), "first": first, "second": second, "seconds": seconds}
            connection.execute(text(EVENT), values)
    return now


def test_the_past_is_read_as_it_was(engine, history):
    found = past(engine, history - timedelta(days=1), history)
    assert len(found.arrivals) == 6
    assert {(arrival.gpu, arrival.post) for arrival in found.arrivals} == {
        (timedelta(seconds=90), timedelta(seconds=35))
    }
    assert found.arrivals[0].at == history - timedelta(hours=20)
    assert found.world.llm_stop == timedelta(seconds=6), "the median"
    assert found.world.services_start == timedelta(seconds=30)
    assert found.world.llm_start == timedelta(seconds=75)
    assert found.measured == {"llm_stop", "services_start", "llm_start"}


@pytest.fixture
def voxint(monkeypatch, tmp_path, database_url, redis_url, capsys):
    for name, value in {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPU_PHASE_FOLLOW_UP_SECONDS", "1")  # what is simulated has them, in make test-no-wake-ups too

    def run(*arguments):
        status = main(["gpu-phase", "simulate", *arguments])
        return status, *capsys.readouterr()

    return run


def test_other_settings_are_compared(voxint, history):
    status, out, err = voxint("--since", "1d")
    assert status == 0
    assert "6 finished recordings" in err
    assert "language model stops: 6 s\n" in err
    assert "services stop: 2 s (assumed: the history has none)" in err
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["min", "dwell"]
    assert len(lines) == 5, "four, and the setting's own is among them"


def test_the_numbers_as_json(voxint, history):
    status, out, _ = voxint("--since", "1d", "--min-dwell", "10m", "--json")
    assert status == 0
    (found,) = json.loads(out)
    assert found["min_dwell_seconds"] == 600
    assert (found["turns"], found["unfinished"]) == (6, 0)
    # 6 s to stop, 30 s to start, 90 s of work, and what the ticks add
    assert 126 <= found["heard_p50_seconds"] <= 126 + 45
    assert 0 < found["unused_share"] < found["llm_away_share"] < 0.1


def test_without_a_past_it_says_so(voxint, engine):
    status, _, err = voxint("--since", "1h")
    assert status == 1
    assert "No recording was finished within 1h" in err
