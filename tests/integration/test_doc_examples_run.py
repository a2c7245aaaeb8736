"""The documents' commands, carried out: ours on a made day, curl against a real console, a real broker and stand-in model servers.

What differs here from what a reader types is put in its place first: ports, numbers of recordings, names of files. The
answers that stand beside a command must have the same names in them as the real ones.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from urllib.request import urlopen

import made_day
import pytest
from broker_process import BrokerProcess
from doc_examples import all_examples, commands, lines_of_shell, ours
from ports import free_port

from voxint.cli.main import main

pytestmark = pytest.mark.timeout(300)
NOT_STARTED = {
    "standalone": "it serves until it is stopped: test_standalone.py",
    "demo": "test_demo.py",
    "worker": "it serves until it is stopped: test_workers_as_processes.py",
    "beat": "as worker",
    "serve": "it serves until it is stopped; here for the API's examples",
    "init": "it writes a host's .env: test_cli_init.py",
    "models fetch": "gigabytes from publishers: test_fetching_weights.py, from a hub of its own",
    "placement probe": "it needs a model server: placement/test_cli_placement.py",
    "gpu-phase release --wait": "it waits for a phase task: test_cli_gpu_phase.py",
    "gpu-phase audio-now --wait": "as release --wait",
}
"""Commands of ours that are not carried out here, and the test that does it, or why."""
TOKEN = "a token of 24 characters"


def shown_commands():
    """Every command line of `voxint` in the documents that is one whole command."""
    found = {}
    for example in all_examples():
        for words in commands(example):
            own = ours(words)
            if own and own[0] == "voxint" and own[1] and not any(mark in word for word in own[1] for mark in "[]|"):
                found.setdefault(shlex.join(own[1]), str(example))
    return found


SHOWN = {
    line: where
    for line, where in shown_commands().items()
    if not any(line == each or line.startswith(f"{each} ") for each in NOT_STARTED)
}


@pytest.fixture
def day(monkeypatch, tmp_path, engine, database_url, redis_url):
    """A made day in the database, and the environment of a command."""
    made_day.made_phase(engine)
    settings = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path / "media"),
        "COMPUTE_TIER": "simulated",
        "GPU_PHASE_ENABLED": "true",
        "API_TOKEN": TOKEN,
        "HOME": str(tmp_path),
        "TZ": "UTC",
        **{f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/{name}" for name in ("ACQUIRE", "RELEASE", "STATUS")},
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    shutil.copy(made_day.SPEECH / "festival.ogg", tmp_path / "talk.mp3")
    return made_day.made_recordings(engine, tmp_path / "media")


def carry_out(line, run, capfd):
    arguments = [{"RUN": str(run), "SERVICE": "whisper"}.get(word, word) for word in shlex.split(line)]
    capfd.readouterr()
    status = main(arguments)
    return status, "".join(capfd.readouterr())


def test_the_commands_of_the_documents_are_carried_out(day, capfd):
    """On one day for all of them; those that delete come last."""
    assert len(SHOWN) > 20
    wrong = []
    for line in sorted(SHOWN, key=lambda line: ("delete" in line or "cancel" in line, line)):
        status, said = carry_out(line, day, capfd)
        if status == 2 and "Missing argument" in said:
            continue  # the documents name the command, as in `voxint runs requeue`
        if status not in {0, 1} or not said.strip() or "Traceback" in said:
            wrong.append(f"{SHOWN[line]}: voxint {line}: exit status {status}: {said}")
    assert wrong == []


def test_a_command_that_is_wrong_is_found(day, capfd):
    assert carry_out("gpu-phase hold --for soon", day, capfd)[0] == 2
    assert carry_out("runs lst", day, capfd)[0] == 2


def test_every_reason_for_not_starting_a_command_is_still_used():
    lines = shown_commands()
    unused = [each for each in NOT_STARTED if not any(line == each or line.startswith(f"{each} ") for line in lines)]
    assert unused in ([], ["gpu-phase audio-now --wait"])


# --- curl -----------------------------------------------------------------------------------------------------

CURL = [
    (example.page, line)
    for example in all_examples()
    if example.block and example.language in {"", "sh"}
    for line in lines_of_shell(example.text)
    if line.startswith("curl ")
]
CONSOLE, BROKER, MODELS = "docs/how-to/console.md", "docs/how-to/write-a-broker.md", "docs/how-to/model-servers.md"
SHARING = "docs/how-to/share-a-gpu.md"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def test_every_curl_of_the_documents_is_on_a_page_whose_calls_are_carried_out():
    assert {page for page, _ in CURL} == {CONSOLE, BROKER, MODELS, SHARING}


def of_page(*pages):
    return [line for page, line in CURL if page in pages]


def curl(line, *replaced, cwd=None):
    """Carry a line out with these in place of what stands there; the status code and the body."""
    for old, new in replaced:
        line = line.replace(old, new)
    argv = [*shlex.split(line), "--silent", "--show-error", "--write-out", "\n%{http_code}", "--max-time", "60"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body


def wait_until_it_answers(url, process, log):
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            urlopen(url, timeout=5).close()
        except OSError as error:
            if hasattr(error, "code"):
                return
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


@needs_curl
def test_the_calls_of_the_http_api_do_what_the_page_says(day, processes, tmp_path):
    port = free_port()
    console = processes.start(
        ["python", "-m", "voxint", "serve"], env={"CONSOLE_BIND": f"127.0.0.1:{port}"}, name="console"
    )
    wait_until_it_answers(f"http://127.0.0.1:{port}/healthz", console, processes.log("console"))
    here = [("127.0.0.1:8080", f"127.0.0.1:{port}"), ("$API_TOKEN", TOKEN), ("runs/7", f"runs/{day}")]
    upload, show, transcript = of_page(CONSOLE)
    code, body = curl(upload, *here, cwd=tmp_path)
    assert code in {200, 201, 202}, body
    assert json.loads(body)
    code, body = curl(show, *here)
    assert (code, json.loads(body)["status"]) == (200, "done")
    code, body = curl(transcript, *here)
    assert code == 200
    assert body.startswith("1\n00:00:")
    code, _ = curl(show, *here[:1], ("$API_TOKEN", "not the token"), *here[2:])
    assert code == 401


@needs_curl
def test_the_calls_of_the_contract_do_what_the_page_says(tmp_path):
    broker = BrokerProcess(tmp_path)
    try:
        broker.start()
        broker.until_phase("free")
        here = ("127.0.0.1:9100", f"127.0.0.1:{broker.port}")
        acquire, status, release = of_page(BROKER)
        assert (of_page(SHARING)) == [status]
        end = time.monotonic() + 90
        while (answer := curl(acquire, here))[0] == 202:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert answer[0] == 200
        lease = json.loads(answer[1])["lease_id"]
        assert json.loads(curl(status, here)[1])["lease_id"] == lease
        assert curl(release, here)[0] == 404, "b7c1 is the page's own"
        while (answer := curl(release, here, ("b7c1", lease)))[0] == 202:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert answer[0] == 200
        assert json.loads(curl(status, here)[1])["state"] == "free"
    finally:
        broker.close()


BROKER_COMMANDS = [
    words
    for example in all_examples()
    if example.page == BROKER and example.block
    for words in commands(example)
    if words[0] == "voxint-broker"
]


def test_the_brokers_commands_do_what_the_page_says(tmp_path):
    assert [words[1] for words in BROKER_COMMANDS] == [
        "doctor", "dry-run", "serve", "status", "release", "simulate", "check",
    ]  # fmt: skip
    broker = BrokerProcess(tmp_path)
    here = {"broker.toml": str(broker.config), "http://127.0.0.1:9100/gpu": f"http://127.0.0.1:{broker.port}/gpu"}
    here["http://127.0.0.1:8081/health"] = f"http://127.0.0.1:{broker.service_port}/healthz"
    try:
        for words in BROKER_COMMANDS:
            if words[1] == "simulate":
                continue  # it serves until it is stopped: test_broker_check.py runs against it
            if words[1] == "serve":
                broker.start()
                broker.until_phase("free")
                continue
            argv = [sys.executable, "-m", "voxint_broker", *(here.get(word, word) for word in words[1:])]
            done = subprocess.run(argv, check=False, input="y\n", capture_output=True, text=True, timeout=200)
            assert done.returncode in ({0, 1} if words[1] in {"doctor", "release"} else {0}), (words, done)
            assert done.stdout + done.stderr, words
    finally:
        broker.close()


PORTS = {"whisper": "15101", "pyannote": "15102", "titanet": "15103"}


@needs_curl
def test_the_model_servers_answer_the_calls_of_the_page_with_the_names_that_it_shows(processes):
    ports = {name: str(free_port()) for name in PORTS}
    for name, port in ports.items():
        stub = processes.start(["python", "-m", "voxint_models.stub", name, "--port", port], name=name)
        wait_until_it_answers(f"http://127.0.0.1:{port}/healthz", stub, processes.log(name))
    here = [(PORTS[name], port) for name, port in ports.items()]
    lines = of_page(MODELS)
    answers = re.findall(r"^\$ curl.*?\n(\{.*?\n)(?=```)", page_text(MODELS), re.MULTILINE | re.DOTALL)
    assert len(lines) == len(answers) == 5
    for line, answer in zip(lines, answers, strict=True):
        shown = json.loads(answer.replace(",...", "").replace("[...]", "[]"))
        if "error" in shown:
            continue  # a stand-in decodes nothing: tests/unit/models and tests/integration/models ask the real ones
        code, body = curl(line, *here, cwd=made_day.SPEECH.parents[1])
        assert code == 200, body
        assert set(shown) <= set(json.loads(body)), (line, body)


def page_text(page):
    return (made_day.SPEECH.parents[1] / page).read_text(encoding="utf-8")
