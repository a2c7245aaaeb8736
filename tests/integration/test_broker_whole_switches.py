"""Whole switches of services that are harder than one process: a server that sleeps, leftovers, a container that others start."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import pytest
from broker_process import BrokerProcess
from docker_engine import PROJECT, SERVICE, FakeContainer, FakeEngine
from model_servers import Server
from simulated_broker import running

from voxint_broker.adapters import processes
from voxint_broker.adapters.making import adapter_of
from voxint_broker.adapters.sleeper import Sleeper
from voxint_broker.config import check
from voxint_broker.memory.reading import Reading
from voxint_broker.simulated import SimulatedService


def until(true, what="", seconds=60):
    limit = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < limit, what
        time.sleep(0.02)
    return value


def configured(tmp_path, **fields):
    service = {"name": "lm", "ready_url": "http://127.0.0.1:1/", **fields}
    return check({"state_dir": "s", "memory": {"kind": "none"}, "service": [service]}, tmp_path).service[0]


# --- a server that sleeps -------------------------------------------------------------------------------------


class Card:
    """Free when the server's process is gone, or when it sleeps and gives its memory back."""

    def __init__(self, server, owner, *, gives_back):
        self.server, self.owner, self.gives_back = server, owner, gives_back

    def read(self):
        free = not self.owner.runs or (self.server.sleeping and self.gives_back)
        return Reading(enough=free, detail="free" if free else "held by the server that sleeps")


@pytest.fixture
def sleeper(tmp_path):
    server = Server()
    server.as_vllm()
    owner = SimulatedService(name="lm", keep_running=False, runs=True)
    config = configured(tmp_path, kind="http", server="vllm", url=server.url, asleep_seconds=0.2)
    yield server, owner, Sleeper(config, owner)
    server.close()


def test_a_server_that_sleeps_and_gives_its_memory_back_is_left_alone(tmp_path, sleeper):
    server, owner, lm = sleeper
    with running(tmp_path, service=lm, gauge=Card(server, owner, gives_back=True)) as world:
        world.until_phase("free")
        lease = world.granted()
        assert server.sleeping
        assert (owner.runs, owner.stops) == (True, [])
        assert world.released(lease) == 200
        assert not server.sleeping
        assert owner.starts == 0


def test_a_server_that_sleeps_and_keeps_its_memory_is_stopped_altogether(tmp_path, sleeper):
    server, owner, lm = sleeper
    with running(tmp_path, service=lm, gauge=Card(server, owner, gives_back=False)) as world:
        world.until_phase("free")
        lease = world.granted()
        assert ("POST", "/sleep?level=1", None) in server.calls
        assert (owner.runs, owner.stops) == (False, ["SIGTERM"])
        server.sleeping = False  # as one that is started anew
        assert world.released(lease) == 200
        assert (owner.runs, owner.starts) == (True, 1)


def test_a_server_that_cannot_be_asked_is_neither_stopped_nor_granted_over(tmp_path, sleeper):
    server, owner, lm = sleeper
    with running(tmp_path, service=lm, gauge=Card(server, owner, gives_back=True)) as world:
        world.until_phase("free")
        routes, server.routes = server.routes, {}
        for _ in range(10):
            assert world.acquire()[0] == 202
            time.sleep(0.005)
        server.routes = routes
        world.granted()


# --- leftovers ------------------------------------------------------------------------------------------------


def test_leftovers_are_stopped_before_a_new_start(tmp_path):
    broker = BrokerProcess(tmp_path)
    text = broker.config.read_text(encoding="utf-8")
    wrapped = ["sh", "-c", 'sleep 3600 & exec "$@"', "sh", sys.executable]
    broker.config.write_text(
        text.replace(f"[{json.dumps(sys.executable)}", json.dumps(wrapped).removesuffix("]")), encoding="utf-8"
    )
    broker.start()
    try:
        broker.until_phase("free")
        (first,) = broker.service_pids()
        left = [pid for pid in processes.in_group(first) if pid != first]
        assert left
        os.kill(first, signal.SIGKILL)
        until(lambda: broker.service_pids() not in {(), (first,)}, broker.log())
        broker.until_phase("free")
        assert processes.living(left) == ()
        assert "lm ended" in broker.log()
    finally:
        os.killpg(broker.service_pids()[0], signal.SIGKILL)
        broker.close()


# --- what others start ----------------------------------------------------------------------------------------


def test_docker_tells_of_a_start_at_once(tmp_path):
    engine = FakeEngine(tmp_path / "docker.sock")
    engine.serve()
    argv = [sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)"]
    labels = {PROJECT: "stack", SERVICE: "llm"}
    box = engine.add(FakeContainer("llm", labels, argv, str(tmp_path / "llm.log"), id="llm"))
    told = threading.Event()
    try:
        lm = adapter_of(configured(tmp_path, kind="docker", container="llm", socket=engine.path), "test")
        lm.watch(told.set)
        until(lambda: engine.listeners)
        assert not told.is_set()
        other = adapter_of(configured(tmp_path, kind="docker", container="llm", socket=engine.path), "test")
        other.start()
        assert told.wait(60)
        assert box.status() == "running"
    finally:
        engine.close()
