"""A reference broker as a process, with a stand-in for the language model: for tests that need the real thing."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ports import free_port

from voxint_broker.adapters import processes
from voxint_broker.adapters.child import MARK

if TYPE_CHECKING:
    from pathlib import Path


class BrokerProcess:
    """`python -m voxint_broker serve` in a folder, and calls to it."""

    def __init__(self, folder: Path, *, stub: tuple[str, ...] = (), top: str = "", lease: str = "", memory: str = ""):
        self.folder = folder
        self.port = free_port()
        self.service_port = free_port()
        self.config = folder / "broker.toml"
        self.environment: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.process: subprocess.Popen | None = None
        command = [
            sys.executable, "-m", "voxint_models.stub", "language_model", "--port", str(self.service_port), *stub,
        ]  # fmt: skip
        self.config.write_text(
            f'listen = ["127.0.0.1:{self.port}"]\nstate_dir = "state"\n{top}\n'
            f"[lease]\nlook_seconds = 0.2\nretry_seconds = 1\n{lease}\n"
            f'[memory]\nkind = "lock"\npath = "card.lock"\n{memory}\n'
            f'[[service]]\nname = "lm"\nkind = "child"\ncommand = {json.dumps(command)}\nlog = "lm.log"\n'
            f'ready_url = "http://127.0.0.1:{self.service_port}/healthz"\n'
            f'environment = {{ CARD_LOCK = "{folder}/card.lock", CARD_LEDGER = "{folder}/card.ledger" }}\n',
            encoding="utf-8",
        )

    def start(self, **environment: str) -> None:
        """Start it, and wait until it answers or has ended."""
        log = (self.folder / "broker.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "voxint_broker", "serve", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **environment},
            )
        limit = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < limit:
            with contextlib.suppress(OSError):
                self.status()
                return
            time.sleep(0.02)

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None):
        """One call: the status code and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(
                method, path, data, {"Content-Type": "application/json", **self.headers, **(headers or {})}
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def status(self) -> dict:
        """The status answer."""
        return self.call("GET", "/gpu/status")[1]

    def acquire(self, lease_id: str | None = None, *, holder: str = "voxint", ttl: float = 600):
        """One acquire or renewal."""
        return self.call("POST", "/gpu/acquire", {"holder": holder, "ttl_seconds": ttl, "lease_id": lease_id})

    def release(self, lease_id: str):
        """One release."""
        return self.call("POST", "/gpu/release", {"lease_id": lease_id})

    def until(self, call, wanted: int, seconds: float = 60):
        """Repeat a call while it is pending; its answer, which must have the wanted code."""
        limit = time.monotonic() + seconds
        while True:
            code, body = call()
            if code != 202:
                assert code == wanted, (code, body, self.log())
                return body
            assert time.monotonic() < limit, (body, self.status(), self.log())
            time.sleep(0.02)

    def until_phase(self, phase: str, seconds: float = 60) -> dict:
        """Wait for a phase; the status then."""
        limit = time.monotonic() + seconds
        while (status := self.status())["phase"] != phase:
            assert time.monotonic() < limit, (status, self.log())
            time.sleep(0.02)
        return status

    def granted(self, **options) -> str:
        """Acquire to the end; the lease's id."""
        return self.until(lambda: self.acquire(**options), 200)["lease_id"]

    def lease_in_use(self, card) -> str:
        """A lease that runs out in seconds, while its holder has the card: `card` is its lock file, open.

        On a slow machine the lease may be over, and the service back, before the card is taken: then once more.
        """
        while True:
            lease = self.granted(ttl=3)
            try:
                fcntl.flock(card, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                self.until_phase("free")
                continue
            return lease

    def service_pids(self) -> tuple[int, ...]:
        """The living processes of the stand-in."""
        wanted = str(self.service_port)
        return tuple(pid for pid in processes.marked_like(MARK) if wanted in processes.command_line(pid))

    def log(self) -> str:
        """What the broker wrote."""
        return (self.folder / "broker.log").read_text(encoding="utf-8")

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def terminate(self) -> int:
        """An ordinary end; the exit status."""
        self.process.terminate()
        return self.process.wait(20)

    def close(self) -> None:
        """End the broker and what it started."""
        self.kill()
        for pid in self.service_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
