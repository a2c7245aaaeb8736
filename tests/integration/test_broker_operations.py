"""The broker as its operator has it: SIGHUP, notification, audit file, JSON log, and the commands with their exit status."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from broker_process import BrokerProcess
from ports import free_port

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def make(tmp_path):
    made = []

    def start(*, begin=True, **options):
        broker = BrokerProcess(tmp_path, **options)
        made.append(broker)
        if begin:
            broker.start()
            broker.until_phase("free")
        return broker

    yield start
    for broker in made:
        broker.close()


def until(true, what="", seconds=60):
    limit = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < limit, what
        time.sleep(0.02)
    return value


def command(broker, *words, answer=""):
    """Run a command of the broker's with its configuration; its exit status, stdout and stderr."""
    argv = [sys.executable, "-m", "voxint_broker", *words, "--config", str(broker.config)]
    done = subprocess.run(argv, check=False, input=answer, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


def rewrite(broker, old, new):
    text = broker.config.read_text(encoding="utf-8")
    assert old in text
    broker.config.write_text(text.replace(old, new), encoding="utf-8")
    broker.process.send_signal(signal.SIGHUP)


# --- SIGHUP ---------------------------------------------------------------------------------------------------


def test_sighup_takes_other_numbers_and_another_token_over(make):
    broker = make(top='token = "sesame"', begin=False)
    broker.headers = {"Authorization": "Bearer sesame"}
    broker.start()
    broker.until_phase("free")
    before = broker.service_pids()
    text = broker.config.read_text(encoding="utf-8")
    broker.config.write_text(text.replace("[lease]", "[lease]\nmax_ttl_seconds = 1"), encoding="utf-8")
    rewrite(broker, '"sesame"', '"open"')
    until(lambda: "the configuration was read again" in broker.log())
    assert broker.call("GET", "/gpu/status")[0] == 401
    broker.headers = {"Authorization": "Bearer open"}
    assert broker.service_pids() == before
    broker.granted(ttl=600)
    broker.until_phase("free")  # a second is the longest lease now
    assert "the lease ran out" in broker.log()
    assert "sesame" not in broker.log()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("look_seconds", "look_second", "lease.look_second: there is no such key (did you mean look_seconds?)"),
        ("[lease]", "[lease", "is not TOML"),
        ('state_dir = "state"', 'state_dir = "other"', "state_dir cannot change while the broker runs: restart it"),
        ('name = "lm"', 'name = "llm"', "services cannot come, go or change their kind while the broker runs"),
    ],
)
def test_sighup_with_a_configuration_that_cannot_be_used_keeps_the_old_one(make, old, new, words):
    broker = make()
    rewrite(broker, old, new)
    until(lambda: f"the old configuration stays: {'' if 'TOML' in words else words}" in broker.log(), broker.log())
    assert words in broker.log()
    lease = broker.granted()
    broker.until(lambda: broker.release(lease), 200)


# --- notification, audit, log ---------------------------------------------------------------------------------

WRITE_DOWN = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read() + '\\n')"


def test_a_person_is_told_once_of_an_expiry_with_memory_that_is_not_free(make, tmp_path):
    told = tmp_path / "told.jsonl"
    hook = [sys.executable, "-S", "-E", "-c", WRITE_DOWN, str(told)]
    broker = make(top=f"notify = {json.dumps(hook)}")
    with (tmp_path / "card.lock").open("wb") as card:
        broker.lease_in_use(card)
        until(lambda: told.exists() and "memory is not free" in told.read_text())
        (line,) = [json.loads(line) for line in told.read_text().splitlines() if line]
        assert line["phase"] == "expired"
        assert line["at"].endswith("+00:00")
        fcntl.flock(card, fcntl.LOCK_UN)
    broker.until_phase("free")
    assert told.read_text().count("memory is not free") == 1


def test_a_hook_that_hangs_holds_nothing_up(make, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    broker = make(top=f'notify = ["sh", "-c", "cat {gate}"]')
    (first,) = broker.service_pids()
    os.kill(first, signal.SIGKILL)  # a notification, whose hook now waits
    until(lambda: "lm ended (signal 9)" in broker.log())
    until(lambda: broker.service_pids() not in {(), (first,)})
    broker.until_phase("free")
    lease = broker.granted()
    broker.until(lambda: broker.release(lease), 200)
    with contextlib.suppress(OSError):  # the hook may go
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("hook", ["/no/such/program", "false"])
def test_a_hook_that_fails_is_in_the_log(make, hook):
    broker = make(top=f'notify = ["{hook}"]')
    os.kill(broker.service_pids()[0], signal.SIGKILL)
    until(lambda: "the notification hook" in broker.log())
    broker.until_phase("free")


def test_every_grant_and_release_is_in_the_audit_file(make, tmp_path):
    broker = make(top='audit_file = "audit.jsonl"\ntoken = "sesame"\nlog_json = true', begin=False)
    broker.headers = {"Authorization": "Bearer sesame"}
    broker.start()
    leases = []
    for _ in range(2):
        leases.append(broker.granted())
        broker.until(lambda: broker.release(leases[-1]), 200)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    grants = [line for line in lines if line["event"] == "acquiring -> held"]
    returns = [line for line in lines if line["event"] == "held -> releasing"]
    assert [line["lease_id"] for line in grants] == [line["lease_id"] for line in returns] == leases
    assert {line["holder"] for line in grants + returns} == {"voxint"}
    assert [line["fence"] for line in grants] == [1, 2]
    log = [json.loads(line) for line in broker.log().splitlines()]
    assert all({"at", "level", "logger", "event"} <= set(line) for line in log)
    assert "acquiring -> held" in {line["event"] for line in log}
    assert "sesame" not in broker.log() + (tmp_path / "audit.jsonl").read_text()


def test_an_audit_file_that_cannot_be_written_holds_nothing_up(make, tmp_path):
    (tmp_path / "audit.jsonl").mkdir()
    broker = make(top='audit_file = "audit.jsonl"')
    broker.granted()
    assert "cannot write the audit file" in broker.log()


# --- commands -------------------------------------------------------------------------------------------------


def test_status_shows_who_holds_the_gpu(make):
    broker = make()
    code, text, _ = command(broker, "status")
    assert code == 0
    assert "phase       free" in text
    assert "service     lm: running (process" in text
    lease = broker.granted()
    assert f"lease_id    {lease}" in command(broker, "status")[1]
    code, text, _ = command(broker, "status", "--json")
    assert (code, json.loads(text)["lease_id"]) == (0, lease)


def test_release_asks_before_it_takes_the_gpu_back(make):
    broker = make()
    assert command(broker, "release")[:2] == (0, "nobody holds the GPU (phase free)\n")
    lease = broker.granted()
    code, _, errors = command(broker, "release")
    assert code == 4
    assert "voxint holds the GPU" in errors
    code, _, errors = command(broker, "release", "--force", answer="n\n")
    assert code == 1
    assert "Take it back?" in errors
    assert broker.status()["lease_id"] == lease
    code, text, _ = command(broker, "release", "--force", answer="y\n")
    assert code == 0
    assert "asked for" in text
    broker.until_phase("free")


def test_release_by_its_id_needs_no_force(make):
    broker = make()
    lease = broker.granted()
    assert command(broker, "release", "another")[0] == 4
    assert command(broker, "release", lease)[0] == 0
    broker.until_phase("free")


def test_commands_without_a_broker_say_so(make):
    broker = make(begin=False)
    for words in (("status",), ("release", "--force", "--yes")):
        code, _, errors = command(broker, *words)
        assert code == 1
        assert "Is it running?" in errors


def test_doctor_looks_at_a_running_broker_and_changes_nothing(make):
    broker = make()
    before = broker.service_pids()
    code, text, errors = command(broker, "doctor")
    assert (code, errors) == (0, ""), text
    assert "[ok  ] memory" in text
    assert f"lm: running (process {before[0]})" in text
    assert "lm: really answers" in text
    assert "[ok  ] one-voxint" in text
    assert broker.service_pids() == before


def test_doctor_finds_what_would_go_wrong(make, tmp_path):
    broker = make(begin=False)
    text = broker.config.read_text(encoding="utf-8")
    text = text.replace('kind = "lock"\npath = "card.lock"', 'kind = "lock"\npath = "no/such/folder/lock"')
    text = text.replace(json.dumps(sys.executable), '"/no/such/program"')
    broker.config.write_text(text, encoding="utf-8")
    code, text, _ = command(broker, "doctor")
    assert code == 1
    assert "[FAIL] memory" in text
    assert "[FAIL] rights     lm: there is no program /no/such/program" in text
    assert "lm: stopped" in text


def test_dry_run_tells_what_a_switch_would_do(make):
    broker = make(begin=False)
    code, text, _ = command(broker, "dry-run")
    assert code == 0
    assert "lm (child): SIGTERM (20 s), then SIGKILL (5 s)" in text
    assert not broker.service_pids()


@pytest.mark.parametrize("words", [("serve",), ("status",), ("doctor",), ("dry-run",)])
def test_a_configuration_that_cannot_be_used_is_wrong_usage_and_all_of_it_is_told(make, words):
    broker = make(begin=False)
    broker.config.write_text('lisen = ["x"]\n[memory]\nkind = "lock"\n', encoding="utf-8")
    code, _, errors = command(broker, *words)
    assert code == 2
    for problem in (
        "lisen: there is no such key (did you mean listen?)",
        "state_dir: is missing",
        "service: is missing",
    ):
        assert problem in errors


def test_an_address_that_is_taken_is_told(make):
    broker = make()
    other = make(begin=False)
    text = other.config.read_text(encoding="utf-8")
    other.config.write_text(text.replace(f":{other.port}", f":{broker.port}", 1), encoding="utf-8")
    code, _, errors = command(other, "serve")
    assert code == 1
    assert f"cannot listen at 127.0.0.1:{broker.port}: Address already in use" in errors


def test_simulate_is_a_whole_broker(tmp_path):
    port = free_port()
    argv = [sys.executable, "-m", "voxint_broker", "simulate", "--listen", f"127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--start-seconds", "0.1", "--stop-seconds", "0.1", "--linger-seconds", "0.2"], stderr=log
        )
    client = object.__new__(BrokerProcess)
    client.port, client.headers, client.folder = port, {}, tmp_path
    client.log = (tmp_path / "log").read_text
    try:
        until(lambda: "listening at" in client.log())
        client.until_phase("free")
        lease = client.granted()
        client.until(lambda: client.release(lease), 200)
    finally:
        process.terminate()
        assert process.wait(60) == 0
