"""`voxint gpu-phase` on a real database: what it prints, what it records, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text
from stored_phase import add_recordings, store_phase
from voxint_command import command_in

from voxint.db.plain import reader, understood
from voxint.gpu_phase.status import look, read
from voxint.settings import load_settings
from voxint.wiring import make

URLS = {f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/gpu/{name.lower()}" for name in ("ACQUIRE", "RELEASE", "STATUS")}


@pytest.fixture
def voxint(monkeypatch, tmp_path, database_url, redis_url, capsys):
    """Runs a command in this process; gives (exit status, stdout, stderr)."""
    settings = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "COMPUTE_TIER": "simulated",
        "GPU_PHASE_ENABLED": "true",
        "HOME": str(tmp_path),
        "TZ": "UTC",
        **URLS,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    return command_in(capsys)


def fields(out):
    return dict(line.split(":", 1) for line in out.splitlines() if ":" in line)


def snapshot(engine):
    with engine.begin() as connection:
        return connection.execute(text("SELECT * FROM gpu_phase")).all()


def requests(engine):
    with engine.begin() as connection:
        query = "SELECT kind, made_in, outcome, requested_by FROM gpu_phase_request ORDER BY id"
        return [tuple(row) for row in connection.execute(text(query))]


def test_status_without_a_row_shows_none_and_exits_0(voxint):
    status, out, err = voxint("gpu-phase", "status")
    assert status == 0
    shown = fields(out)
    assert list(shown) == [
        "phase",
        "since",
        "last tick",
        "lease expires",
        "last error",
        "failures",
        "next try",
        "request",
        "gpu lane",
        "post lane",
    ]
    assert shown["phase"].split()[0] == "none"
    assert shown["request"].strip() == "none"
    assert "has not run" in err


def test_status_as_json_has_every_key_in_every_phase(voxint, engine):
    keys = [
        "enabled",
        "phase",
        "phase_since",
        "phase_age_seconds",
        "ticked_at",
        "task_running",
        "lease_id_known",
        "lease_expires_at",
        "last_error",
        "failures",
        "retry_after",
        "request",
        "llm_ready",
        "llm_checked_at",
        "gpu_lane",
        "post_lane",
    ]
    for phase in (None, "llm", "acquiring", "audio", "error"):
        if phase:
            store_phase(engine, phase, age=timedelta(minutes=3))
        status, out, _ = voxint("gpu-phase", "status", "--json")
        document = json.loads(out)
        assert status == 0
        assert list(document) == keys
        assert document["phase"] == (phase or "none")
        assert document["lease_id_known"] is (phase == "audio")
        assert document["gpu_lane"] == {"open": phase == "audio", "waiting": 0, "running": 0}
        assert "lease-1" not in out
        if phase:
            assert datetime.fromisoformat(document["phase_since"]).utcoffset() == timedelta(0)
            assert document["phase_age_seconds"] == pytest.approx(180, abs=30)


def test_status_counts_what_waits_on_each_lane(voxint, engine):
    store_phase(engine, "llm")
    add_recordings(engine, 3)
    add_recordings(engine, 2, kind="enhance_match", lane="post")
    _, out, err = voxint("gpu-phase", "status")
    assert fields(out)["gpu lane"].strip() == "closed; 3 waiting, 0 running"
    assert fields(out)["post lane"].strip().startswith("closed; 2 waiting, 0 running")
    assert (
        "Waiting for the GPU. 3 recordings are queued; the GPU is serving the language model until the next audio"
        " window." in err
    )


@pytest.mark.parametrize("nasty", ["bad [/red] reply", "[/]", "[slug].mp4", "[Errno 111] refused", ":smile: [bold]x"])
def test_brackets_in_an_error_are_printed_as_they_are(voxint, engine, nasty):
    store_phase(engine, "error", last_error=nasty, failures=1)
    status, out, err = voxint("gpu-phase", "status")
    assert status == 0
    assert fields(out)["last error"].strip() == nasty
    assert nasty in err


def test_control_characters_in_an_error_do_not_reach_the_terminal(voxint, engine):
    store_phase(engine, "error", last_error="a\x1b[31mred\x07\nnext\u202eline", failures=1)
    _, out, _ = voxint("gpu-phase", "status")
    assert not set(out) & {"\x1b", "\x07", "\u202e"}
    assert "[31mred next" in fields(out)["last error"]


def test_with_sharing_off_status_says_so_and_requests_change_nothing(voxint, engine, monkeypatch):
    monkeypatch.setenv("GPU_PHASE_ENABLED", "false")
    status, out, _ = voxint("gpu-phase", "status")
    assert status == 0
    assert "GPU sharing is off" in out
    for command in (["audio-now"], ["release"], ["hold", "--for", "1h"], ["resume"]):
        status, out, err = voxint("gpu-phase", *command)
        assert (status, out) == (1, "")
        assert err.startswith("error: GPU sharing is off")
    assert requests(engine) == []
    status, out, _ = voxint("gpu-phase", "status", "--json")
    assert (status, json.loads(out)["enabled"], json.loads(out)["gpu_lane"]["open"]) == (0, False, True)


def test_sharing_off_while_a_lease_is_held_is_warned_about(voxint, engine, monkeypatch):
    store_phase(engine, "audio")
    monkeypatch.setenv("GPU_PHASE_ENABLED", "false")
    status, out, err = voxint("gpu-phase", "status")
    assert status == 0
    assert fields(out)["phase"].split()[0] == "audio"
    assert "the lease may still be held and the language model stopped" in err
    for command in (["audio-now"], ["release"], ["hold", "--for", "1h"], ["resume"]):
        status, out, err = voxint("gpu-phase", *command)
        assert (status, out) == (1, "")
        off, left = err.splitlines()
        assert off == "error: GPU sharing is off (GPU_PHASE_ENABLED=false): nothing was changed"
        assert "the stored phase is audio and a lease is recorded" in left
    assert requests(engine) == []


@pytest.mark.parametrize("kind", ["audio-now", "release"])
@pytest.mark.parametrize("phase", [None, "llm", "audio", "draining", "error"])
def test_a_request_is_recorded_and_the_row_is_not_touched(voxint, engine, kind, phase):
    if phase:
        store_phase(engine, phase, ticked=timedelta(hours=1))
    before = snapshot(engine)
    status, out, err = voxint("gpu-phase", kind)
    assert (status, err) == (0, "")
    assert out.strip()
    assert snapshot(engine) == before
    assert [row[:3] for row in requests(engine)] == [(kind, phase, None)]
    assert requests(engine)[0][3].endswith("(command line)")
    if phase:
        assert "has not run since" in out


def test_a_newer_request_supersedes_the_older_one(voxint, engine):
    store_phase(engine, "llm")
    voxint("gpu-phase", "audio-now")
    voxint("gpu-phase", "release")
    assert [row[:3] for row in requests(engine)] == [("audio-now", "llm", "superseded"), ("release", "llm", None)]
    _, out, _ = voxint("gpu-phase", "status", "--json")
    assert json.loads(out)["request"] == "release"


def test_operators_do_not_make_a_dead_task_look_alive(voxint, engine):
    store_phase(engine, "llm", ticked=timedelta(minutes=10))
    for _ in range(3):
        voxint("gpu-phase", "release")
        voxint("gpu-phase", "audio-now")
    _, out, _ = voxint("gpu-phase", "status", "--json")
    assert json.loads(out)["task_running"] is False


def test_hold_and_resume(voxint, engine):
    store_phase(engine, "llm", age=timedelta(hours=1))
    status, out, _ = voxint("gpu-phase", "hold", "--for", "2h")
    assert status == 0
    assert out.startswith("No switch to audio begins by itself until ")
    _, out, _ = voxint("gpu-phase", "status")
    assert "the hold of" in fields(out)["next try"]
    _, out, _ = voxint("gpu-phase", "audio-now")
    assert "It overrides the hold" in out
    assert voxint("gpu-phase", "resume")[1] == "The hold is gone.\n"
    assert voxint("gpu-phase", "resume")[1] == "There was no hold.\n"


def test_history_lists_the_changes(voxint, engine):
    assert voxint("gpu-phase", "history")[1] == "No phase has changed in that time.\n"
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause, reason, seconds, lease_id) VALUES"
                " (voxint_now() - interval '2 days', null, 'llm', 'first_tick', null, null, null),"
                " (voxint_now(), 'llm', 'draining_post', 'work_waits', '[/] odd', 75, 'lease-9')"
            )
        )
    status, out, _ = voxint("gpu-phase", "history")
    assert status == 0
    assert len(out.splitlines()) == 2
    assert "recordings waited: [/] odd" in out
    assert "1 min 15 s" in out
    _, out, _ = voxint("gpu-phase", "history", "--since", "7d", "--json")
    listed = json.loads(out)
    assert [entry["to"] for entry in listed] == ["llm", "draining_post"]
    assert listed[1]["seconds"] == 75
    assert "lease-9" not in out


def test_wait_gives_up_at_its_limit_with_the_phase(voxint, engine):
    store_phase(engine, "llm")
    status, _, err = voxint("gpu-phase", "audio-now", "--wait", "--limit", "0.1s")
    assert status == 1
    assert "error: not done within 0 s; the phase is llm" in err


def test_an_unreachable_database_is_one_clear_line_without_the_password(voxint, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hush@127.0.0.1:9/voxint")
    status, out, err = voxint("gpu-phase", "status")
    assert (status, out) == (1, "")
    assert err.startswith("error: cannot reach the database at 127.0.0.1:9/voxint: ")
    assert "refused" in err
    assert len(err.splitlines()) == 1
    assert "hush" not in err


def test_a_database_without_tables_says_how_to_make_them(voxint, monkeypatch, empty_database_url):
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    status, out, err = voxint("gpu-phase", "status")
    assert (status, out) == (1, "")
    assert "run `voxint db upgrade`" in err
    assert voxint("db", "upgrade")[0] == 0
    assert "nothing to do" in voxint("db", "upgrade")[1]


def test_a_database_of_a_newer_version_is_left_as_it_is(voxint, engine):
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    code, out, err = voxint("db", "upgrade")
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert "the database has schema 9999, which is newer than this version's" in err
    assert voxint("gpu-phase", "status")[0] == 0


def test_refused_settings_are_a_line_each(voxint, monkeypatch):
    monkeypatch.setenv("GPU_PHASE_TICK_SECONDS", "1")
    monkeypatch.setenv("GPU_LEASE_ACQUIRE_URL", "ftp://x")
    status, out, err = voxint("gpu-phase", "status")
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: GPU_") for line in lines)


def test_wrong_usage_is_2(voxint):
    assert voxint("gpu-phase", "status", "--nonsense")[0] == 2
    assert voxint("gpu-phase", "hold", "--for", "soon")[0] == 2
    assert voxint("gpu-phase", "status", "--json", "--watch")[0] == 2


def test_the_gpu_phase_worker_refuses_to_run_without_a_service_control(voxint, monkeypatch):
    monkeypatch.setenv("SERVICE_CONTROL", "none")
    status, out, err = voxint("worker", "--gpu-phase")
    assert (status, out) == (1, "")
    assert err.startswith("error: SERVICE_CONTROL: the gpu-phase worker must start and stop")


@pytest.mark.parametrize("phase", [None, "llm", "audio", "stopping_services", "releasing", "error"])
def test_a_look_over_a_bare_connection_sees_what_the_engine_s_look_sees(voxint, engine, database_url, phase):
    settings = load_settings(os.environ)
    store_phase(engine, phase or "error", age=timedelta(minutes=3), failures=1, last_error="bad [/red] reply")
    with engine.begin() as connection:
        if phase is None:
            connection.execute(text("DELETE FROM gpu_phase"))
        connection.execute(
            text(
                "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause) VALUES"
                " (voxint_now(), 'releasing', 'error', 'release_failed'),"
                " (voxint_now(), 'error', 'stopping_services', 'retry')"
            )
        )
        connection.execute(text("UPDATE work_control SET hold_until = voxint_now() + interval '1 h', hold_by = 'ann'"))
    add_recordings(engine, 3)
    voxint("gpu-phase", "release")
    made = make(settings)
    with reader(database_url) as rows:
        alone = read(rows, settings.policy)
    other = look(made.phase_store, settings)
    made.close()
    assert replace(alone, now=other.now) == other
    assert timedelta(0) <= other.now - alone.now < timedelta(minutes=1)
    assert alone.hand_back_failed is (phase in {"stopping_services", "releasing", "error"})
    assert (alone.gpu_lane.waiting, alone.hold_by) == (3, "ann")


def test_status_imports_none_of_the_heavy_libraries(voxint, engine):
    store_phase(engine, "llm")
    code = (
        "import sys; from voxint.cli.main import main; status = main(['gpu-phase', 'status']); "
        "print(status, sorted(set(sys.modules) & {'sqlalchemy', 'celery', 'docker', 'fastapi', 'httpx', 'rich', 'redis'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 []", "")


def test_an_address_that_only_the_engine_understands_works_too(voxint, engine, database_url, monkeypatch):
    store_phase(engine, "llm")
    host = next(part for part in urlsplit(database_url).query.split("&") if part.startswith("host="))
    odd = f"{database_url}&{host}"
    assert not understood(odd)
    monkeypatch.setenv("DATABASE_URL", odd)
    status, out, _ = voxint("gpu-phase", "status")
    assert (status, fields(out)["phase"].split()[0]) == (0, "llm")
