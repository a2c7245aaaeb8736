"""`voxint-broker check` as a command: on the reference broker, on one of forty lines of Perl, and on three faulty ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from ports import free_port
from small_broker import SmallBroker

PERL_BROKER = Path(__file__).parents[2] / "examples" / "broker" / "small_broker.pl"


def check(url, *options, seconds=240):
    command = [sys.executable, "-m", "voxint_broker", "check", f"{url}/gpu", "--yes", "--json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    assert not done.stderr, done.stderr
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


def verdicts(rows):
    return {row["verdict"] for row in rows.values()}


@pytest.mark.timeout(300)
def test_the_reference_broker_passes_every_row(tmp_path):
    token = tmp_path / "token"
    token.write_text("sesame\n")
    broker = BrokerProcess(tmp_path, top='token_file = "token"', lease="give_up_seconds = 1")
    broker.headers = {"Authorization": "Bearer sesame"}
    broker.start()
    try:
        broker.until_phase("free")
        service = f"http://127.0.0.1:{broker.service_port}/healthz"
        options = ("--service-url", service, "--token-file", str(token), "--left-alone", "100")
        code, rows = check(f"http://127.0.0.1:{broker.port}", *options)
        assert (code, verdicts(rows)) == (0, {"ok"}), rows
        assert {"service while held", "a request that is left alone", "service after an expiry"} <= set(rows)
    finally:
        broker.close()


@pytest.mark.timeout(300)
def test_a_broker_of_forty_lines_of_perl_passes(tmp_path):
    perl = shutil.which("perl")
    if perl is None or subprocess.run([perl, "-MJSON::PP", "-e", "1"], check=False, capture_output=True).returncode:
        pytest.skip("no perl with JSON::PP here")
    code_lines = [line for line in PERL_BROKER.read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(code_lines) <= 40
    port, service_port = free_port(), free_port()
    service = [sys.executable, "-m", "voxint_models.stub", "language_model", "--port", str(service_port)]
    with (tmp_path / "perl.log").open("wb") as log:
        process = subprocess.Popen(
            [perl, PERL_BROKER, str(port), f"127.0.0.1:{service_port}", *service], stdout=log, stderr=log
        )
    try:
        until_free(f"http://127.0.0.1:{port}/gpu/status")
        code, rows = check(
            f"http://127.0.0.1:{port}", "--service-url", f"http://127.0.0.1:{service_port}/healthz", "--limit", "60"
        )
        assert code == 0, (rows, (tmp_path / "perl.log").read_text())
        assert verdicts(rows) == {"ok", "skip"}, rows
        assert [row["name"] for row in rows.values() if row["verdict"] == "skip"] == ["a request that is left alone"]
    finally:
        process.terminate()
        process.wait(20)


def until_free(url):
    from voxint_broker.asking import AskError, ask

    limit = time.monotonic() + 60
    while True:
        try:
            # Its service starts beside it: a call makes it look.
            if ask(url, 10).json()["state"] == "free":
                return
        except AskError:
            pass
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "row"),
    [
        ("grants at once", "service while held"),
        ("grants twice", "another holder"),
        ("forgets to release", "status after the release"),
    ],
)
def test_a_faulty_broker_fails_by_its_row(fault, row):
    broker = SmallBroker(fault)
    try:
        code, rows = check(broker.url, "--service-url", f"{broker.url}/service", "--limit", "10")
        assert code == 1
        assert rows[row]["verdict"] == "FAIL", rows
        assert rows[row]["expected"] not in {"", rows[row]["got"]}
    finally:
        broker.close()


def test_without_yes_nothing_is_called():
    broker = SmallBroker()
    try:
        command = [sys.executable, "-m", "voxint_broker", "check", f"{broker.url}/gpu"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "this stops the other service" in done.stderr
        assert "Voxint's gpu-phase worker is stopped" in done.stderr
        assert broker.number == 0
    finally:
        broker.close()


def test_an_address_where_nobody_is_fails_and_stops_there():
    code, rows = check(f"http://127.0.0.1:{free_port()}", seconds=120)
    assert code == 1
    assert rows["status at rest"]["got"] == "no answer"
