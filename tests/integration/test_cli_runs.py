"""`voxint runs` on a real database and real media files."""

from __future__ import annotations

import json

import pytest
from made_wav import made_wav
from sqlalchemy import text
from voxint_command import command_in


@pytest.fixture
def voxint(monkeypatch, tmp_path, database_url, redis_url, capsys):
    settings = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "HOME": str(tmp_path),
        "TZ": "UTC",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    return command_in(capsys)


@pytest.fixture
def recording(tmp_path):
    def make(name="talk.wav", seconds=1):
        return made_wav(tmp_path / name, seconds, silent=True)

    return make


def test_a_recording_is_added_listed_and_shown(voxint, recording):
    assert "There are no recordings yet" in voxint("runs", "list")[1]
    status, out, err = voxint("runs", "add", recording("[slug].wav"), "--speakers", "2-4", "--language", "en")
    assert (status, err) == (0, "")
    assert out == "1  [slug]\n"
    status, out, _ = voxint("runs", "list")
    assert status == 0
    head, row = out.splitlines()
    assert head.split() == ["id", "status", "stage", "progress", "length", "added", "title"]
    assert row.startswith("1   queued  acquire")
    assert row.endswith("[slug]")
    shown = json.loads(voxint("runs", "show", "1", "--json")[1])
    assert (shown["status"], shown["speakers_min"], shown["speakers_max"]) == ("queued", 2, 4)
    assert shown["executions"] == []
    assert json.loads(voxint("runs", "list", "--json")[1])[0]["title"] == "[slug]"
    assert "title:" in voxint("runs", "show", "1")[1]


def test_what_is_no_recording_is_refused_and_the_others_are_queued(voxint, recording, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    status, out, err = voxint("runs", "add", tmp_path / "notes.txt", recording(), tmp_path / "absent.wav")
    assert status == 1
    assert out == "1  talk\n"
    assert [line.startswith("error: cannot add ") for line in err.splitlines()] == [True, True]
    assert "there is no such file" in err


def test_a_recording_that_is_not_there_is_said(voxint):
    for command in ("show", "requeue", "cancel"):
        status, out, err = voxint("runs", command, "77")
        assert (status, out) == (1, "")
        assert err.startswith("error: there is no recording 77")
    assert voxint("runs", "show", "0")[0] == 2
    assert voxint("runs", "show", "x")[0] == 2


def test_cancel_and_requeue(voxint, recording):
    voxint("runs", "add", recording())
    assert voxint("runs", "cancel", "1")[:2] == (0, "recording 1 is cancelled\n")
    status, _, err = voxint("runs", "cancel", "1")
    assert (status, err) == (1, "error: recording 1 is cancelled: it cannot be cancelled\n")
    assert voxint("runs", "requeue", "1")[:2] == (0, "recording 1 is queued again, at acquire\n")
    status, _, err = voxint("runs", "requeue", "1")
    assert (status, err) == (1, "error: recording 1 is queued: it cannot be requeued\n")


def test_language_and_speakers_have_defaults_that_a_recording_may_change(voxint, recording, monkeypatch):
    monkeypatch.setenv("RUN_LANGUAGE", "de")
    monkeypatch.setenv("RUN_SPEAKERS", "2-3")
    voxint("runs", "add", recording("a.wav"))
    voxint("runs", "add", recording("b.wav"), "--language", "auto", "--speakers", "1")
    listed = {run["title"]: run for run in json.loads(voxint("runs", "list", "--json")[1])}
    told = {title: (run["language"], run["speakers_min"], run["speakers_max"]) for title, run in listed.items()}
    assert told == {"a": ("de", 2, 3), "b": (None, 1, 1)}
    for name, value in (("RUN_LANGUAGE", "German"), ("RUN_SPEAKERS", "4-2"), ("RUN_SPEAKERS", "many")):
        monkeypatch.setenv(name, value)
        status, _, err = voxint("runs", "list")
        assert status != 0
        assert f"{name}: must be" in err
        monkeypatch.delenv(name)


def _ending(monkeypatch, engine, *states):
    """At each look at the recording, the next of these (status, error) is what a worker has made of it."""
    from voxint.cli import runs_follow

    left = list(states)

    class Bell:
        def wait(self, seconds):
            status, error = left.pop(0)
            with engine.begin() as connection:
                connection.execute(
                    text("UPDATE run SET status = :status, error = :error, stage = 'prepare'"),
                    {"status": status, "error": error},
                )

    monkeypatch.setattr(runs_follow, "Event", Bell)


def test_add_waits_for_the_end_and_tells_the_steps(voxint, recording, engine, monkeypatch):
    _ending(monkeypatch, engine, ("running", None), ("running", None), ("done", None))
    status, out, err = voxint("runs", "add", recording(), "--wait")
    assert (status, out) == (0, "1  talk  done\n")
    assert err == "1  acquire queued\n1  prepare running\n1  done\n"


def test_add_that_waits_tells_a_failure_by_its_exit_status(voxint, recording, engine, monkeypatch):
    _ending(monkeypatch, engine, ("failed", "there is no audio track in it"))
    status, out, err = voxint("runs", "add", recording(), "--wait", "--json")
    assert (status, json.loads(out)[0]["status"]) == (1, "failed")
    assert err.endswith("1  failed: there is no audio track in it\n")


def test_pause_and_resume(voxint, engine):
    assert voxint("runs", "pause")[0] == 0
    with engine.begin() as connection:
        assert connection.execute(text("SELECT paused_by FROM work_control")).scalar_one().endswith("(command line)")
    assert voxint("runs", "resume")[1] == "The queue goes on.\n"
    assert voxint("runs", "resume")[1] == "The queue was not paused.\n"


def test_a_redis_that_is_away_does_not_keep_a_recording_out(voxint, recording, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:9/0")
    status, out, _ = voxint("runs", "add", recording())
    assert (status, out) == (0, "1  talk\n")
