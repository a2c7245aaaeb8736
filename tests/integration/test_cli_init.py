"""`voxint init` as a process: with a broker that answers, with none, and answered by a person."""

import os
import stat
import subprocess
import sys

import pytest
from broker_process import BrokerProcess
from ports import free_port

from voxint.init import envfile


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "compose.yaml").write_text("services: {}\n", encoding="utf-8")
    return tmp_path / "checkout"


@pytest.fixture
def broker(tmp_path):
    (tmp_path / "broker").mkdir()
    process = BrokerProcess(tmp_path / "broker")
    process.start()
    yield process
    process.close()


def run(folder, *options, typed=""):
    environ = {name: value for name, value in os.environ.items() if name not in {"TZ", "DOCKER_HOST"}}
    return subprocess.run(
        [sys.executable, "-m", "voxint", "init", *options],
        cwd=folder, input=typed, capture_output=True, text=True, timeout=120, check=False,
        env=environ | {"PATH": "/nonexistent"},
    )  # fmt: skip


def test_a_host_is_set_up_and_the_broker_tried(folder, broker):
    address = f"http://host.docker.internal:{broker.port}"
    done = run(folder, "--yes", "--tier", "gpu", "--sharing", "--broker", address)
    assert done.returncode == 0, done.stderr
    assert f"The broker answers at http://127.0.0.1:{broker.port}/gpu/status: nobody holds" in done.stdout
    assert "docker compose -f compose.yaml -f compose.gpu.yaml -f compose.gpu-phase.yaml up -d" in done.stdout
    assert "-m voxint_models.weights fetch" in done.stdout
    values = envfile.read((folder / ".env").read_text(encoding="utf-8"))
    assert values["GPU_LEASE_ACQUIRE_URL"] == f"{address}/gpu/acquire"
    assert stat.S_IMODE((folder / ".env").stat().st_mode) == 0o600
    for name in ("POSTGRES_PASSWORD", "CONSOLE_PASSWORD"):
        assert len(values[name]) >= 32
        assert values[name] not in done.stdout + done.stderr


def test_a_second_run_changes_nothing(folder):
    first = run(folder, "--yes")
    assert first.returncode == 0
    assert "fetch" not in first.stdout, "the CPU tier's models are in its images"
    before = (folder / ".env").read_text(encoding="utf-8")
    assert run(folder, "--yes").returncode == 0
    assert (folder / ".env").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("word", ["1", "Yes"])
def test_sharing_that_was_on_stays_on_whichever_word_says_so(folder, word):
    (folder / ".env").write_text(f"COMPUTE_TIER=gpu\nGPU_PHASE_ENABLED={word}\n", encoding="utf-8")
    run(folder, "--yes", "--broker", f"http://127.0.0.1:{free_port()}")
    assert envfile.read((folder / ".env").read_text(encoding="utf-8"))["GPU_PHASE_ENABLED"] == "true"


def test_without_a_broker_the_file_is_written_and_the_failure_told(folder):
    port = free_port()
    done = run(folder, "--yes", "--tier", "gpu", "--sharing", "--broker", f"http://127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"cannot reach the broker at http://127.0.0.1:{port}/gpu/status: connection refused" in done.stderr
    assert "GPU_PHASE_ENABLED=true" in (folder / ".env").read_text(encoding="utf-8")


def test_a_person_is_asked_what_nobody_can_find_out(folder, broker):
    typed = f"tpu\nrocm\ny\nhttp://127.0.0.1:{broker.port}\nsecret-token\nhttp://llm.lan:8000/v1\n"
    done = run(folder, typed=typed)
    assert done.returncode == 0, done.stderr
    values = envfile.read((folder / ".env").read_text(encoding="utf-8"))
    assert values["COMPUTE_TIER"] == "rocm"
    assert values["LLM_BASE_URL"] == "http://llm.lan:8000/v1"
    assert values["GPU_LEASE_TOKEN"] == "secret-token"
    assert "secret-token" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--sharing", "--tier", "cpu"), "--sharing needs a GPU"),
        (("--tier", "gpu", "--sharing", "--broker", "broker:9100"), "GPU_LEASE_ACQUIRE_URL: must be an http:// or"),
        (("--tier", "gpu", "--sharing", "--token-file", "nowhere"), "cannot read nowhere"),
        (("--tier", "cpu", "--llm", "ftp://x"), "LLM_BASE_URL: must be an http:// or https:// address"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_written(folder, options, problem):
    done = run(folder, "--yes", *options)
    assert done.returncode == 1
    assert problem in done.stderr
    assert not (folder / ".env").exists()


def test_outside_a_checkout_it_says_where_to_go(tmp_path):
    done = run(tmp_path, "--yes")
    assert done.returncode == 1
    assert "there is no compose.yaml in" in done.stderr
