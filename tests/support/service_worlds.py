"""The model services in each way to run them, and what the world may do to them, for the contract suite."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from docker_engine import PROJECT, SERVICE, FakeContainer, FakeEngine
from ports import free_port

from voxint.services import process_table
from voxint.services.docker import DockerControl
from voxint.services.process import ProcessControl
from voxint.settings import ServiceSettings, Settings

if TYPE_CHECKING:
    from voxint.gpu_phase.ports import Services

NAMES = ("whisper", "pyannote", "titanet")
TINY = Path(__file__).with_name("tiny_service.py")


def eventually(what, seconds=40.0):
    until = time.monotonic() + seconds
    while True:
        value = what()
        if value or time.monotonic() > until:
            return value
        time.sleep(0.02)


class ProcessWorld:
    """Services as child processes, and what the world may do to them."""

    grace = 0.6

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.options = {name: [] for name in NAMES}
        self.ports = {name: free_port() for name in NAMES}

    def settings(self):
        services = {
            name: ServiceSettings(
                name,
                f"http://127.0.0.1:{self.ports[name]}",
                "/healthz",
                (sys.executable, str(TINY), "--port", str(self.ports[name]), *self.options[name]),
            )
            for name in NAMES
        }
        return Settings(service_control="process", service_state_dir=self.folder / "run", services=services)

    def control(self) -> Services:
        environ = {**os.environ, "DATABASE_URL": "postgresql://u:secret@127.0.0.1/v", "GPU_LEASE_TOKEN": "hush"}
        return ProcessControl(self.settings(), environ, stop_grace_seconds=self.grace, stop_call_seconds=1.0)

    def pids(self, name):
        records = dict.fromkeys(NAMES)
        return [process.pid for process in process_table.living(self.folder / "run", records)[name]]

    def behave(self, name, *, start_seconds=0.0, stop_seconds=0.0, ignore_stop=False):
        self.options[name] = ["--start-seconds", str(start_seconds), "--stop-seconds", str(stop_seconds)]
        self.options[name] += ["--ignore-term"] if ignore_stop else []

    def cannot_start(self, name):
        self.options[name] = ["--fail", "the card is held by the language model"]

    def can_start(self, name):
        self.options[name] = []

    def die(self, name):
        for pid in self.pids(name):
            os.kill(pid, signal.SIGKILL)

    def freeze(self, name):
        for pid in self.pids(name):
            os.kill(pid, signal.SIGSTOP)

    def identity(self, name):
        return self.pids(name)

    def lose_engine(self):
        def refuse():
            raise PermissionError(13, "Permission denied", "/proc")

        self.monkeypatch.setattr(psutil, "pids", refuse)

    def find_engine(self):
        self.monkeypatch.undo()

    def close(self):
        self.find_engine()
        for name in NAMES:
            self.die(name)


class DockerWorld:
    """Services as containers of a small engine of our own."""

    grace = 1

    def __init__(self, folder, _monkeypatch):
        self.folder = folder
        self.ports = {name: free_port() for name in NAMES}
        self.engine = FakeEngine(folder / "docker.sock").serve()
        self.host = self.engine.host
        self.turn = folder / "turn" / "turn.json"
        for name in NAMES:
            self.add(name)

    def add(self, service, name=None, project="voxint", number="1", **options):
        """One container, as compose makes it."""
        labels = {PROJECT: project, SERVICE: service, "com.docker.compose.container-number": number}
        labels |= {"com.docker.compose.oneoff": "False"} | options.pop("labels", {})
        port = self.ports.get(service, 0)
        argv = [sys.executable, str(TINY), "--port", str(port)]
        name = name or f"{project}-{service}-{number}"
        return self.engine.add(FakeContainer(name, labels, argv, str(self.folder / f"{name}.log"), **options))

    def settings(self):
        services = {
            name: ServiceSettings(name, f"http://127.0.0.1:{self.ports[name]}", "/healthz", ()) for name in NAMES
        }
        return Settings(service_control="docker", services=services, gpu_turn_file=self.turn)

    def control(self) -> Services:
        for container in self.engine.containers.values():
            container.stop_timeout = self.grace
        return DockerControl(self.settings(), {"DOCKER_HOST": self.host}, look_seconds=8.0, change_seconds=3.0)

    def containers(self, name):
        return [one for one in self.engine.containers.values() if one.labels[SERVICE] == name]

    def container(self, name):
        return self.containers(name)[0]

    def behave(self, name, *, start_seconds=0.0, stop_seconds=0.0, ignore_stop=False):
        argv = self.container(name).argv[:4]
        argv += ["--start-seconds", str(start_seconds), "--stop-seconds", str(stop_seconds)]
        self.container(name).argv = argv + (["--ignore-term"] if ignore_stop else [])

    def cannot_start(self, name):
        self.container(name).refuse_start = 'could not select device driver "nvidia" with capabilities: [[gpu]]'

    def can_start(self, name):
        self.container(name).refuse_start = None

    def die(self, name):
        self.container(name).end()

    def freeze(self, name):
        self.container(name).paused = True
        self.container(name).process.send_signal(signal.SIGSTOP)

    def identity(self, name):
        return [one.process.pid for one in self.containers(name) if one.status() in {"running", "paused"}]

    def lose_engine(self):
        self.engine.down()

    def find_engine(self):
        self.engine.serve()

    def close(self):
        self.engine.close()
