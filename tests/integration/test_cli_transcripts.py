"""`voxint runs export|versions|ask|jobs|delete` and `voxint speakers`, on a recording that went all the way."""

from __future__ import annotations

import json
import wave
from datetime import timedelta

import pytest
from jsonschema import Draft202012Validator
from scripted_services import ScriptedServices

from voxint.cli.main import main
from voxint.gpu_phase.model import Lane
from voxint.wiring import Parts
from voxint.work.runner import work_once


@pytest.fixture
def done(tmp_path, database_url, redis_url, monkeypatch):
    services = ScriptedServices()
    settings = services.settings(DATABASE_URL=database_url, REDIS_URL=redis_url, MEDIA_ROOT=str(tmp_path / "media"))
    for name, value in {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "LLM_BASE_URL": services.url + "/v1",
        "HOME": str(tmp_path),
        "TZ": "UTC",
    }.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "Monday talk.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(range(256)) * 1000)
    parts = Parts(settings)
    parts.run_store.add(path)

    def work(lane="post"):
        while work_once(parts.gate, Lane(lane), parts.work, every=timedelta(seconds=1), limit=timedelta(seconds=60)):
            pass

    work("gpu")
    work()
    yield work
    parts.close()
    services.close()


@pytest.fixture
def voxint(done, capsysbinary):
    def run(*arguments):
        capsysbinary.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def test_a_transcript_is_given_out_in_every_form(voxint, tmp_path):
    for form in ("txt", "srt", "vtt", "json", "md"):
        status, out, err = voxint("runs", "export", 1, "--format", form)
        assert (status, err) == (0, "")
        assert "Speaker 1" in out
    shown, shape = voxint("runs", "export", 1, "--format", "json")[1], voxint("runs", "schema")[1]
    Draft202012Validator(json.loads(shape)).validate(json.loads(shown))
    status, out, _ = voxint("runs", "export", 1, "--format", "srt", "--to", tmp_path)
    assert (status, out) == (0, f"{tmp_path}/Monday talk.srt\n")
    assert (tmp_path / "Monday talk.srt").read_bytes()
    assert voxint("runs", "export", 1, "--to", tmp_path / "no" / "folder.txt")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1", "--format", "exe"), "no form 'exe'"),
        (("7",), "no transcript yet"),
        (("1", "--version", "3"), "no version 3"),
        (("1", "--language", "de"), "no translation into de"),
    ],
)
def test_what_is_not_there_is_said_on_stderr(voxint, arguments, words):
    status, out, err = voxint("runs", "export", *arguments)
    assert (status, out) == (1, "")
    assert words in err


def test_speakers_are_listed_named_and_merged(voxint):
    listed = json.loads(voxint("speakers", "list", "--json")[1])
    assert [(each["name"], each["recordings"]) for each in listed] == [(None, 1), (None, 1)]
    assert voxint("speakers", "rename", listed[0]["id"], "Anna")[0] == 0
    assert voxint("speakers", "name", 1, "SPEAKER_01", "Ben")[0] == 0
    text = voxint("runs", "export", 1)[1]
    assert "Anna: " in text
    assert "Ben: " in text
    assert "Anna" in voxint("speakers", "list")[1]
    assert voxint("speakers", "merge", listed[1]["id"], listed[0]["id"])[0] == 0
    assert "Ben: " not in voxint("runs", "export", 1)[1]
    assert len(json.loads(voxint("runs", "versions", 1, "--json")[1])) == 4
    assert "Anna" in voxint("runs", "versions", 1)[1]
    status, out, err = voxint("speakers", "rename", 99, "X")
    assert (status, out) == (1, "")
    assert "no speaker 99" in err


def test_a_job_is_asked_for_and_shown(voxint, done):
    assert voxint("runs", "jobs", 1)[1] == "Nothing was asked for.\n"
    status, out, _ = voxint("runs", "ask", 1, "translation", "--language", "de")
    assert status == 0
    assert "queued" in out
    assert voxint("runs", "ask", 1, "translation", "--language", "de")[0] == 1
    assert voxint("runs", "ask", 1, "lunch")[0] == 2
    done()
    shown = json.loads(voxint("runs", "jobs", 1, "--json")[1])
    assert shown["jobs"][0]["state"] == "done"
    assert "de" in shown["results"]["translation"]["languages"]
    assert "translation" in voxint("runs", "jobs", 1)[1]
    assert voxint("runs", "export", 1, "--language", "de", "--format", "srt")[0] == 0


def test_deleting_needs_a_yes(voxint):
    assert voxint("runs", "delete", 1)[0] == 2
    assert voxint("runs", "delete", 1, 2, "--yes")[1] == "recording 1 is deleted\n"
    assert voxint("runs", "list", "--json")[1].strip() == "[]"


def test_an_address_on_this_machine_is_refused(voxint):
    status, _, err = voxint("runs", "add", "http://127.0.0.1:9/a.wav?token=s3cret")
    assert status == 1
    assert "not on the public internet" in err
    assert "s3cret" not in err


@pytest.mark.parametrize("command", ["versions", "jobs"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_nothing_is_told_of_a_recording_that_is_not_there(voxint, command, form):
    status, out, err = voxint("runs", command, 99, *form)
    assert (status, out) == (1, "")
    assert err == "error: there is no recording 99: `voxint runs list` shows those that are there\n"


def test_show_lists_the_jobs_and_one_is_cancelled_alone(voxint):
    voxint("runs", "ask", 1, "translation", "--language", "de")
    voxint("runs", "ask", 1, "run_assets")
    status, out, _ = voxint("runs", "cancel", 1, "--job", "run_assets")
    assert (status, out) == (0, "run_assets of recording 1 is cancelled\n")
    shown = json.loads(voxint("runs", "show", 1, "--json")[1])
    assert shown["status"] == "done"
    assert [(job["kind"], job["state"], job["options"]) for job in shown["jobs"]] == [
        ("run_assets", "cancelled", {}),
        ("translation", "queued", {"language": "de"}),
    ]
    lines = voxint("runs", "show", 1)[1].splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["run_assets", "cancelled"], ["translation", "queued"]]
    status, out, err = voxint("runs", "cancel", 1, "--job", "run_assets")
    assert (status, out, err) == (1, "", "error: no run_assets of recording 1 is under way\n")
    assert voxint("runs", "cancel", 1, "--job", "lunch")[0] == 2
