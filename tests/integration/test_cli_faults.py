"""Faults of the surface, as people meet them: commands on real servers, with the real thing broken. Numbers: docs/reference/faults.md."""

from __future__ import annotations

import contextlib
import json
import socket
from datetime import timedelta

import pytest
from answering import answering, http, never_accepting
from doctor_world import CLOSED, environment
from phase_world import STAGES, FakeBroker, FakeLanguageModel, FakeServices
from sqlalchemy import text
from stored_phase import store_phase
from voxint_command import command_in

from voxint.doctor import workers
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import PhaseStore
from voxint.gpu_phase.tick import Machine, tick
from voxint.lease.client import LeaseClient


@pytest.fixture
def voxint(monkeypatch, tmp_path, database_url, redis_url, capsys):
    """Runs a command in this process, with these settings; gives (exit status, stdout, stderr)."""
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 0.1)

    command = command_in(capsys)

    def run(*arguments, **settings):
        for name, value in environment(tmp_path, database_url, redis_url, **settings).items():
            monkeypatch.setenv(name, value)
        return command(*arguments)

    return run


def checks(voxint, **settings):
    """Doctor's findings by name, and its exit status."""
    status, out, _ = voxint("doctor", "--json", **settings)
    return {check["name"]: check for check in json.loads(out)["checks"]}, status


# --- 29: requests do not hide a dead task -----------------------------------------------------------------------------


def test_requests_do_not_hide_a_phase_task_that_is_dead(voxint, engine):
    store_phase(engine, "llm", age=timedelta(hours=1), ticked=timedelta(minutes=3))
    before = voxint("gpu-phase", "status")[1].splitlines()[2]
    assert before.startswith("last tick:")
    assert before.endswith(": the phase task does not run")
    old = before.split("(")[0]
    for _ in range(3):
        for kind in ("release", "audio-now"):
            status, out, _ = voxint("gpu-phase", kind)
            assert status == 0
            assert "has not run since" in out
        assert voxint("gpu-phase", "status")[1].splitlines()[2].split("(")[0] == old
        found, status = checks(voxint)
        assert "has not run since" in found["gpu sharing"]["text"]
        assert (found["service whisper"]["severity"], status) == ("fail", 1)


@pytest.mark.parametrize("kind", ["audio-now", "release"])
def test_a_request_before_the_first_tick_is_kept_and_used_on_the_first_run(voxint, engine, kind):
    status, out, _ = voxint("gpu-phase", kind)
    assert status == 0
    assert "No phase recorded yet" in out
    assert "No phase is recorded yet" in voxint("gpu-phase", "status")[2]
    store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
    machine = Machine(store, FakeBroker(), FakeServices(), FakeLanguageModel(), Policy())
    assert tick(machine).outcome == "first"
    assert store.pending_request().kind == kind
    report = tick(machine)
    assert report.transition.request is not None
    assert store.pending_request() is None
    if kind == "audio-now":
        assert report.state.phase == "draining_post"


# --- 36: off on purpose hides nothing ---------------------------------------------------------------------------------


PROBES = {
    "refused": (contextlib.nullcontext(CLOSED), "off"),
    "no such name": (contextlib.nullcontext("http://nobody.invalid"), "off"),
    "never accepted": (never_accepting, "fail"),
    "accepted, then silent": (lambda: answering(None), "fail"),
    "401": (lambda: answering(http("401 Unauthorized")), "fail"),
    "500": (lambda: answering(http("500 Internal Server Error")), "fail"),
    "a web page": (lambda: answering(http("200 OK", b"<html></html>", "text/html")), "fail"),
    "TLS": (lambda: answering(b"plain text\r\n\r\n"), "fail"),
}


@pytest.mark.parametrize("name", PROBES)
def test_only_what_looks_stopped_is_off_and_everything_else_makes_doctor_fail(voxint, engine, name, monkeypatch):
    store_phase(engine, "llm")
    real = socket.getaddrinfo

    def no_such_name(host, *arguments, **options):
        if host in {"nobody.invalid", b"nobody.invalid"}:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)  # a name server may take its time to say so
    made, severity = PROBES[name]
    with made() if callable(made) else made as url:
        address = url.replace("http://", "https://") if name == "TLS" else url
        found, _ = checks(voxint, WHISPER_URL=address, LLM_ENABLED="false")
    assert found["service whisper"]["severity"] == severity
    assert found["service pyannote"]["severity"] == "off"
    assert (found["service whisper"]["silenced_by"] == "gpu sharing") is (severity == "off")


def test_an_address_without_a_scheme_makes_doctor_fail(voxint):
    found, status = checks(voxint, WHISPER_URL="whisper:9000")
    assert (found["settings"]["severity"], status) == ("fail", 1)
    assert found["settings"]["text"].startswith("WHISPER_URL: ")


# --- 57: three messages for three ways in which a name leads nowhere -----------------------------------------------------


def test_a_broker_that_is_not_reached_is_told_in_three_ways(voxint, engine, monkeypatch, tmp_path):
    mark = tmp_path / "in-a-container"
    mark.touch()
    monkeypatch.setattr("voxint.doctor.gpu.CONTAINER_MARKS", (mark,))
    monkeypatch.setitem(LeaseClient.__init__.__kwdefaults__, "call_seconds", 2.0)
    store_phase(engine, "llm")
    real = socket.getaddrinfo

    def no_such_name(host, *arguments, **options):
        if host in {"host.docker.internal", b"host.docker.internal"}:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)

    def told(url):
        found, _ = checks(voxint, SERVICE_CONTROL="docker", GPU_LEASE_STATUS_URL=f"{url}/gpu/status")
        assert found["broker"]["severity"] == "fail"
        return found["broker"]["text"]

    unmapped = told("http://host.docker.internal:9")
    refused = told(CLOSED)
    with never_accepting() as url:
        dropped = told(url)
    assert "connection refused" in refused
    assert "use host.docker.internal" in refused
    assert "use host.docker.internal" not in unmapped
    assert "name" in unmapped.lower()
    assert "timed out" in dropped or "within" in dropped
    assert len({unmapped, refused, dropped}) == 3


# --- 110: brackets are text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nasty", ["bad [/red] reply", "[/]", "[slug].mp4", "[Errno 111] refused"])
def test_brackets_in_an_error_are_printed_in_full_by_both_commands(voxint, engine, nasty):
    store_phase(engine, "error", last_error=nasty, failures=1)
    status, out, err = voxint("gpu-phase", "status")
    assert status == 0
    assert nasty in out
    assert nasty in err
    with engine.begin() as connection:
        connection.execute(text("UPDATE gpu_phase SET note = :note"), {"note": nasty})
    _, out, err = voxint("doctor")
    (line,) = (line for line in out.splitlines() if line[7:].startswith("gpu sharing"))
    assert line.startswith("[warn] ")
    assert nasty in line
    assert err == ""
