"""The broker as a process of the host, which containers reach over the Docker bridge: what share-a-gpu.md tells people to set up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from docker_stack import FILES
from ports import free_port

pytestmark = pytest.mark.timeout(1500)
WITH = (*FILES, "tests/docker/compose.host-broker.yaml")
NAME = "host.docker.internal"
TOKEN = "a token for tests alone"


class HostBroker:
    """`voxint-broker serve` on this host, with a stand-in for the language model as its child."""

    def __init__(self, folder: Path, card: Path, bridge: str):
        self.bridge = bridge
        self.port, self.model_port = free_port(), free_port()
        self.config = folder / "broker.toml"
        self.log = folder / "broker.log"
        self.card = card
        self.folder = folder
        self.process: subprocess.Popen | None = None

    def start(self, *listen: str) -> None:
        """Start it, listening on these addresses; comes back when it answers."""
        model = [sys.executable, "-m", "voxint_models.stub", "language_model", "--host", self.bridge]
        model += ["--port", str(self.model_port)]
        kept = {name: str(self.card / file) for name, file in CARD.items()}
        self.config.write_text(
            f"listen = {json.dumps([f'{address}:{self.port}' for address in listen])}\n"
            f"state_dir = {json.dumps(str(self.folder / 'state'))}\n"
            'token_env = "BROKER_TOKEN"\nstop_services_on_exit = true\n'
            f'[memory]\nkind = "lock"\npath = {json.dumps(kept["CARD_LOCK"])}\n'
            f'[[service]]\nname = "language-model"\nkind = "child"\ncommand = {json.dumps(model)}\n'
            f"log = {json.dumps(str(self.folder / 'language-model.log'))}\n"
            f'ready_url = "http://{self.bridge}:{self.model_port}/healthz"\n'
            f"environment = {{ {', '.join(f'{name} = {json.dumps(path)}' for name, path in kept.items())} }}\n",
            encoding="utf-8",
        )
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "voxint_broker", "serve", "--config", str(self.config)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=self.environ)
        until = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < until, self.log.read_text(encoding="utf-8")
            time.sleep(0.1)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "BROKER_TOKEN": TOKEN}

    def answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/livez", timeout=5):
            return True
        return False

    def doctor(self) -> str:
        argv = [sys.executable, "-m", "voxint_broker", "doctor", "--config", str(self.config)]
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(120)
            self.process = None


CARD = {"CARD_LOCK": "card.lock", "CARD_LEDGER": "card.ledger", "STUB_CONTROL": "stub.json"}


@pytest.fixture(scope="module")
def broker(whole, engine, tmp_path_factory):
    """The one stack with its broker on the host, for the tests of this file."""
    if not engine.own:
        pytest.skip("the engine that is here may keep its volumes and its bridge where this process cannot reach them")
    gateway = whole.client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    card = Path(whole.client.volumes.get(f"{whole.project}_card").attrs["Mountpoint"])
    made = HostBroker(tmp_path_factory.mktemp("broker"), card, gateway)
    usual = whole.files, whole.environ
    lease = {f"GPU_LEASE_{call.upper()}_URL": f"http://{NAME}:{made.port}/gpu/{call}" for call in CALLS}
    model = {"LLM_BASE_URL": f"http://{NAME}:{made.model_port}/v1", "GPU_LEASE_TOKEN": TOKEN}
    whole.files, whole.environ = WITH, {**whole.environ, **lease, **model}
    try:
        whole.up()  # the broker of the usual stack ends, and with it the language model that has the card
        made.start("127.0.0.1", gateway)
        yield made
    finally:
        made.end()
        whole.files, whole.environ = usual
        whole.up()


CALLS = ("acquire", "release", "status")


def test_turns_with_the_broker_on_the_host(broker, stack):
    before, events = len(stack.ledger()), stack.last_event()
    for _ in range(2):
        stack.wait_done([stack.add(), stack.add()])
        stack.settle()
    starts = [event["side"] for event in stack.ledger()[before:] if event["event"] == "start"]
    turns = [side for index, side in enumerate(starts) if index == 0 or starts[index - 1] != side]
    assert turns == ["audio", "llm", "audio", "llm"]
    trouble = {"refused", "acquire_failed", "release_failed"}
    assert not [event for event in stack.events(events) if event["cause"] in trouble]
    assert f"containers reach the broker at {broker.bridge}" in broker.doctor()


def test_the_broker_killed_on_the_host_while_voxint_holds_the_gpu(broker, stack):
    recordings = stack.reach("audio")
    broker.end(signal.SIGKILL)
    broker.start("127.0.0.1", broker.bridge)
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()


def test_a_broker_that_listens_on_loopback_alone_is_told_by_both_sides_and_starts_nothing(broker, stack):
    broker.end()
    broker.start("127.0.0.1")
    recording = stack.add()
    stack.voxint("gpu-phase", "audio-now")
    stack.wait(lambda: "refused" in stack.voxint("doctor", check=False).stdout, 120, "the reason is told")
    assert f'add "{broker.bridge}:{broker.port}" to listen' in broker.doctor()
    assert stack.running() == set()
    broker.end()
    broker.start("127.0.0.1", broker.bridge)
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])
