"""Doctor on real servers: each check is shown the real thing, then the broken one, and its line turns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
from answering import answering, http
from docker_engine import PROJECT, SERVICE, FakeContainer, FakeEngine
from doctor_world import environment
from phase_world import FakeBroker
from sqlalchemy import text
from stored_phase import store_phase

from voxint.cli.main import main
from voxint.doctor import host, workers
from voxint.doctor.checks import run_checks, surroundings
from voxint.doctor.finding import Severity
from voxint.gpu_phase.outcomes import Failed, Held
from voxint.settings import load_settings
from voxint.wiring import make


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Most tests ask for no worker: they do not wait long for one."""
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 0.1)


@pytest.fixture
def examine(tmp_path, database_url, redis_url):
    """Makes parts with changed settings, and gives doctor's findings by name."""
    with contextlib.ExitStack() as stack:

        def run(broker=None, **more):
            parts = make(load_settings(environment(tmp_path, database_url, redis_url, **more)))
            stack.callback(parts.close)
            if broker != "real":
                parts.__dict__["broker"] = broker or FakeBroker()
            return {finding.code: finding for finding in run_checks(parts)}

        yield run


def test_database_reachable_and_at_this_versions_schema(examine, engine):
    assert examine()["database"].severity is Severity.OK
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    found = examine()["database"]
    assert found.severity is Severity.FAIL
    assert "schema 0002" in found.text
    assert "run `voxint db upgrade`" in found.text
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert "newer than this version's" in examine()["database"].text


def test_a_missing_table_is_a_failure_though_the_schema_says_it_is_new(examine, engine):
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE gpu_phase"))
    found = examine()
    assert found["database"].severity is Severity.FAIL
    assert "not migrated to this version" in found["database"].text
    assert found["gpu sharing"].severity is Severity.FAIL
    assert found["service whisper"].severity is Severity.FAIL


def test_a_database_that_is_away_is_named_without_its_password(examine):
    found = examine(DATABASE_URL="postgresql://me:hush@127.0.0.1:9/voxint")
    assert found["database"].severity is Severity.FAIL
    assert found["database"].text.startswith("cannot reach the database at 127.0.0.1:9/voxint:")
    assert "hush" not in str(found)
    assert found["redis"].severity is Severity.OK


def test_redis_turns_when_it_stops(examine, valkey_server):
    assert examine()["redis"].severity is Severity.OK
    valkey_server.stop()
    try:
        found = examine()
    finally:
        valkey_server.start()
    assert found["redis"].severity is Severity.FAIL
    assert found["redis"].text.startswith("cannot reach Redis at ")
    assert found["beat"].severity is Severity.FAIL
    assert found["worker"].severity is Severity.FAIL


@pytest.mark.parametrize("secret", ["hush", "p%40ss"])
def test_redis_is_named_without_its_password(examine, secret):
    found = examine(REDIS_URL=f"redis://:{secret}@127.0.0.1:9/0")
    assert found["redis"].severity is Severity.FAIL
    assert secret not in str(found)


@pytest.mark.timeout(240)
def test_workers_and_beat_turn_when_they_start_and_when_they_die(
    examine, engine, processes, tmp_path, database_url, redis_url, eventually, monkeypatch
):
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 1.0)
    names = [f"worker {queue}" for queue in workers.WORK_QUEUES] + ["gpu-phase worker gpu_phase", "beat"]
    before = examine()
    assert {before[name].severity for name in names} == {Severity.FAIL}
    assert "start `voxint worker`" in before["worker voxint_gpu_lane"].text
    assert "start `voxint worker --gpu-phase`" in before["gpu-phase worker gpu_phase"].text

    environ = environment(tmp_path, database_url, redis_url, GPU_PHASE_TICK_SECONDS="5")
    voxint = ("python", "-m", "voxint")
    started = [
        processes.start((*voxint, "worker", "--concurrency", "1"), env=environ, name="worker"),
        processes.start((*voxint, "worker", "--gpu-phase"), env=environ, name="gpu-phase"),
        processes.start((*voxint, "beat"), env=environ, name="beat"),
    ]
    store_phase(engine, "llm")
    eventually(
        lambda: {examine()[name].severity for name in names} == {Severity.OK}, 75, "workers and beat never answered"
    )
    processes.end(started[1], signal.SIGKILL)
    gone = [Severity.FAIL, Severity.OK]
    both = ("gpu-phase worker gpu_phase", "worker voxint_gpu_lane")
    eventually(lambda: (found := examine()) and [found[name].severity for name in both] == gone, 30)
    store_phase(engine, "llm", ticked=timedelta(minutes=5))
    assert examine()["beat"].severity is Severity.WARN
    assert "has not run since" in examine()["gpu sharing"].text


FAULTS = {
    "401": http("401 Unauthorized"),
    "500": http("500 Internal Server Error"),
    "html": http("200 OK", b"<html></html>", "text/html"),
    "json": http("200 OK", b'{"status": "loading"}'),
    "garbage": b"220 smtp\r\n\r\n",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_that_answers_wrongly_is_a_failure_in_llm(examine, engine, fault):
    store_phase(engine, "llm")
    with answering(FAULTS[fault]) as url:
        found = examine(WHISPER_URL=url, LLM_BASE_URL=f"{url}/v1")
    assert found["service whisper"].severity is Severity.FAIL
    assert found["service pyannote"].severity is Severity.OFF
    assert found["llm endpoint llm"].severity is Severity.FAIL


def test_tls_and_silence_are_failures_and_an_unknown_name_is_off(examine, engine, monkeypatch):
    store_phase(engine, "llm")
    real = socket.getaddrinfo

    def no_such_name(name, *arguments, **options):
        if name in {"nobody.invalid", b"nobody.invalid"}:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)  # a name server may take its time to say so
    with answering(b"plain text\r\n\r\n") as plain, answering(None) as silent:
        found = examine(
            WHISPER_URL=plain.replace("http://", "https://"), PYANNOTE_URL=silent, TITANET_URL="http://nobody.invalid"
        )
    assert found["service whisper"].severity is Severity.FAIL
    assert found["service pyannote"].severity is Severity.FAIL
    assert "accepted the connection" in found["service pyannote"].text
    assert found["service titanet"].severity is Severity.OFF


def test_an_address_without_a_scheme_is_refused_with_the_settings(
    tmp_path, database_url, redis_url, monkeypatch, capsys
):
    for name, value in environment(tmp_path, database_url, redis_url, WHISPER_URL="whisper:9000").items():
        monkeypatch.setenv(name, value)
    assert main(["doctor"]) == 1
    assert (
        capsys.readouterr().out == "[fail] settings  WHISPER_URL: must be an http:// or https:// address with a host\n"
    )


def test_off_on_purpose_needs_the_task_to_run(examine, engine):
    store_phase(engine, "llm")
    assert examine()["service whisper"].severity is Severity.OFF
    store_phase(engine, "llm", ticked=timedelta(minutes=3))
    assert examine()["service whisper"].severity is Severity.FAIL
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM gpu_phase"))
    found = examine()
    assert found["service whisper"].severity is Severity.FAIL
    assert "no phase recorded yet" in found["gpu sharing"].text
    assert found["gpu sharing"].severity is Severity.WARN


def test_the_language_model_is_off_in_audio_and_a_failure_in_llm(examine, engine):
    store_phase(engine, "audio")
    found = examine()
    assert found["llm endpoint llm"].severity is Severity.OFF
    assert found["service whisper"].severity is Severity.FAIL
    store_phase(engine, "llm")
    assert examine()["llm endpoint llm"].severity is Severity.FAIL
    models = http("200 OK", b'{"data": [{"id": "m"}]}')
    with answering(models) as url:
        assert examine(LLM_BASE_URL=f"{url}/v1")["llm endpoint llm"].severity is Severity.OK
    assert examine(LLM_ENABLED="false")["llm endpoint"].severity is Severity.OFF


def test_a_service_that_works_on_the_cpu_of_a_gpu_host_is_a_warning(examine, engine):
    store_phase(engine, "audio")
    on = {device: http("200 OK", f'{{"status": "ok", "device": "{device}"}}'.encode()) for device in ("cpu", "cuda")}
    with answering(on["cuda"]) as cuda, answering(on["cpu"]) as cpu:
        good = examine(COMPUTE_TIER="gpu", WHISPER_URL=cuda, PYANNOTE_URL=cuda, TITANET_URL=cuda)
        wrong = examine(COMPUTE_TIER="gpu", WHISPER_URL=cpu, PYANNOTE_URL=cuda, TITANET_URL=cuda)
        rocm = examine(COMPUTE_TIER="rocm", WHISPER_URL=cuda, PYANNOTE_URL=cpu, TITANET_URL=cpu)
        simulated = examine(WHISPER_URL=cpu)
    services = ("whisper", "pyannote", "titanet")
    assert {good[f"placement {name}"].severity for name in services} == {Severity.OK}
    assert wrong["placement whisper"].severity is Severity.WARN
    assert wrong["placement whisper"].text.startswith("runs on cpu, expected cuda: its health answer says cpu. ")
    assert wrong["placement pyannote"].severity is Severity.OK
    assert wrong["service whisper"].severity is Severity.OK
    assert [wrong[f"service {name}"].runs_on for name in services] == ["cpu", "cuda", "cuda"]
    assert wrong["placement whisper"].runs_on == "cpu"
    assert {simulated[f"service {name}"].runs_on for name in services} == {None}
    assert {rocm[f"placement {name}"].severity for name in services} == {Severity.OK}
    assert simulated["placement"].severity is Severity.OFF
    assert "nothing is expected of any service (COMPUTE_TIER=simulated)" in simulated["placement"].text
    off = examine(COMPUTE_TIER="gpu", GPU_PLACEMENT_ACTION="off")
    assert (off["placement"].severity, "placement whisper" in off) == (Severity.OFF, False)
    assert examine(COMPUTE_TIER="gpu")["placement whisper"].severity is Severity.OFF


@pytest.mark.parametrize(
    ("answer", "severity", "words"),
    [
        (http("200 OK", b'{"state": "free", "holder": null, "lease_id": null, "expires_at": null}'), "ok", "is free"),
        (http("200 OK", b'{"state": "perhaps"}'), "fail", ""),
        (http("401 Unauthorized"), "fail", "401"),
        (http("200 OK", b"<html>", "text/html"), "fail", ""),
    ],
)
def test_the_real_client_s_words_on_a_real_socket(examine, engine, answer, severity, words):
    store_phase(engine, "llm")
    with answering(answer) as url:
        found = examine(broker="real", GPU_LEASE_STATUS_URL=f"{url}/gpu/status", GPU_LEASE_TOKEN="hush-token")
    assert found["broker"].severity == severity
    assert words in found["broker"].text
    assert "hush-token" not in str(found)


def test_a_broker_that_hangs_is_to_be_restarted(examine, engine):
    store_phase(engine, "llm")

    def said(reason):
        failed = Failed(f"cannot reach the broker at http://b/status: {reason}")
        return examine(broker=FakeBroker(answers={"status": failed}))["broker"].text

    hint = "the broker hangs: restart it (`systemctl restart voxint-broker`"
    assert hint in said("no complete answer within 10 s (timed out)")
    assert "restart" not in said("connection refused")


def test_a_broker_whose_clock_is_wrong_is_a_warning(examine, engine):
    store_phase(engine, "llm")
    free = http("200 OK\r\nDate: Mon, 30 Nov 2020 12:00:00 GMT", b'{"state": "free", "holder": null, "lease_id": null}')
    with answering(free) as url:
        found = examine(broker="real", GPU_LEASE_STATUS_URL=f"{url}/gpu/status")
    assert found["broker"].severity is Severity.OK
    assert found["broker clock"].severity is Severity.WARN
    assert "behind the database's" in found["broker clock"].text


def test_the_broker_s_answer_is_checked(examine, engine):
    store_phase(engine, "llm")
    assert examine()["broker"].severity is Severity.OK
    broken = FakeBroker(answers={"status": Failed("cannot reach the broker at http://127.0.0.1:9: connection refused")})
    found = examine(broker=broken)["broker"]
    assert (found.severity, found.text) == (
        Severity.FAIL,
        "cannot reach the broker at http://127.0.0.1:9: connection refused",
    )
    other = FakeBroker(answers={"status": Held("other", "zz9")})
    found = examine(broker=other)["broker"]
    assert found.severity is Severity.WARN
    assert "other holds the GPU" in found.text


def test_with_sharing_off_nobody_is_called_and_a_leftover_is_a_warning(examine, engine):
    broker = FakeBroker()
    found = examine(broker=broker, GPU_PHASE_ENABLED="false")
    assert broker.calls == []
    assert (found["gpu sharing"].severity, found["broker"].severity) == (Severity.OFF, Severity.OFF)
    assert found["service whisper"].severity is Severity.FAIL
    store_phase(engine, "audio")
    found = examine(broker=broker, GPU_PHASE_ENABLED="false")
    assert found["gpu sharing"].severity is Severity.WARN
    assert "the lease may still be held and the language model stopped" in found["gpu sharing"].text
    assert broker.calls == []


def test_a_container_is_told_what_loopback_means_there(examine, monkeypatch, tmp_path):
    mark = tmp_path / "mark"
    monkeypatch.setattr("voxint.doctor.gpu.CONTAINER_MARKS", (mark,))
    broken = FakeBroker(answers={"status": Failed("connection refused")})
    assert "container" not in examine(broker=broken)["broker"].text
    mark.touch()
    assert "container" not in examine(broker=broken)["broker"].text
    assert "use host.docker.internal" in examine(broker=broken, SERVICE_CONTROL="docker")["broker"].text
    far = examine(broker=broken, SERVICE_CONTROL="docker", GPU_LEASE_STATUS_URL="http://gpu-host:9/status")
    assert "container" not in far["broker"].text


def test_the_media_folder_must_be_there(examine, tmp_path):
    assert examine()["media folder"].severity in {Severity.OK, Severity.WARN}
    found = examine(MEDIA_ROOT=str(tmp_path / "absent"))["media folder"]
    assert found.severity is Severity.FAIL
    assert "No such file" in found.text


SMALL_DISK = """
import sys
from pathlib import Path
from types import SimpleNamespace as Values
from voxint.doctor.host import media_folder
folder = Path(sys.argv[1])
around = Values(parts=Values(settings=Values(media_root=folder)))
print(media_folder(around)[0].severity.value)
(folder / "big").write_bytes(bytes(39 << 19))
print(media_folder(around)[0].severity.value)
"""


def test_the_media_folder_s_line_turns_as_the_disk_fills(tmp_path):
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "fill.py"
    script.write_text(SMALL_DISK)
    mounted = f"mount -t tmpfs -o size=20m tmpfs '{disk}' && exec '{sys.executable}' '{script}' '{disk}'"
    done = subprocess.run([*unshare, "sh", "-c", mounted], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ok\nfail\n", "", 0)


def docker_line(parts, path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    parts.__dict__.pop("services", None)
    return host.docker(surroundings(parts))[0]


def test_the_docker_socket_s_line_turns(tmp_path, database_url, redis_url, monkeypatch):
    environ = environment(tmp_path, database_url, redis_url, SERVICE_CONTROL="docker")
    parts = make(load_settings(environ))
    path = tmp_path / "docker.sock"
    try:
        found = docker_line(parts, path, monkeypatch)
        assert found.severity is Severity.OFF
        assert "Only the gpu-phase worker needs it" in found.text
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            found = docker_line(parts, path, monkeypatch)
            assert found.severity is Severity.FAIL
            assert "refused" in found.text
            server.listen()
            path.chmod(0o600 if os.getuid() == 0 else 0)
            found = as_nobody(lambda: docker_line(parts, path, monkeypatch), tmp_path)
            assert found[0] == "fail"
            assert "permission" in found[1].lower()
    finally:
        parts.close()


def test_a_container_of_ours_that_wants_the_gpu_beside_the_turns_is_a_failure(
    tmp_path, database_url, redis_url, monkeypatch
):
    engine = FakeEngine(tmp_path / "engine.sock")
    gpu = {"DeviceRequests": [{"Driver": "nvidia", "Capabilities": [["gpu"]]}]}

    def container(name, service, host_config):
        labels = {PROJECT: "voxint", SERVICE: service}
        made = engine.add(FakeContainer(name, labels, ["sleep", "60"], str(tmp_path / "log"), host_config=host_config))
        made.start()

    container("voxint-whisper-1", "whisper", gpu)
    container("voxint-api-1", "api", {})
    parts = make(load_settings(environment(tmp_path, database_url, redis_url, SERVICE_CONTROL="docker")))
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    engine.serve()
    try:
        assert [(one.code, one.severity) for one in host.docker(surroundings(parts))] == [("docker socket", "ok")]
        container("voxint-synthdetect-1", "synthdetect", gpu)
        found = host.docker(surroundings(parts))[1]
        assert (found.code, found.severity) == ("gpu containers", "fail")
        assert found.text.startswith("voxint-synthdetect-1 reserves a GPU beside the turns")
    finally:
        parts.close()
        engine.close()


def as_nobody(check, tmp_path):
    """What the check finds for a user without rights; root passes every file's mode."""
    if os.getuid() != 0:
        found = check()
        return found.severity.value, found.text
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = check()
            os.write(writing, json.dumps([found.severity.value, found.text]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told)


def test_doctor_on_the_command_line(tmp_path, database_url, redis_url, engine, monkeypatch, capsys):
    for name, value in environment(tmp_path, database_url, redis_url).items():
        monkeypatch.setenv(name, value)
    store_phase(engine, "error", last_error="bad [/red] reply", failures=1)
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    lines = {line[7:].split("  ")[0]: line for line in out.splitlines()}
    assert lines["gpu sharing"].startswith("[warn] gpu sharing ")
    assert "bad [/red] reply" in lines["gpu sharing"]
    assert lines["database"].startswith("[ok  ] ")
    assert lines["service whisper"].startswith("[off ] ")
    assert main(["doctor", "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert listed["ok"] is False
    assert {check["name"] for check in listed["checks"]} >= {"settings", "database", "redis", "broker", "gpu sharing"}


def test_a_check_that_breaks_becomes_a_line_and_doctor_ends(examine, monkeypatch):
    monkeypatch.setattr("voxint.doctor.host.shutil.disk_usage", lambda _folder: 1 / 0)
    found = examine()["media folder"]
    assert found.severity is Severity.FAIL
    assert found.text == "could not be checked: ZeroDivisionError: division by zero"
