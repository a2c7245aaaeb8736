"""The data folder of a standalone Voxint: what lies where, who may use it, and the loopback ports that it keeps."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below the range from which the kernel takes ports for outgoing connections."""


class HomeError(RuntimeError):
    """The data folder cannot be used: which, and why."""


class InUseError(HomeError):
    """Another standalone Voxint runs on this folder. `pid` is its process, where it could be read."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"Voxint already runs on {folder} ({who}): stop it first, or give another folder with --data")
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Home:
    """The folder. Everything of a standalone Voxint lies in it, and nothing elsewhere."""

    folder: Path

    @property
    def postgres(self) -> Path:
        """PostgreSQL's data."""
        return self.folder / "postgres"

    @property
    def valkey(self) -> Path:
        """Valkey's append-only file."""
        return self.folder / "valkey"

    @property
    def media(self) -> Path:
        """The recordings and their transcripts: MEDIA_ROOT."""
        return self.folder / "media"

    @property
    def run(self) -> Path:
        """What processes leave for their next start: service state, ports, children."""
        return self.folder / "run"

    @property
    def logs(self) -> Path:
        """A file for each process."""
        return self.folder / "logs"

    @property
    def broker(self) -> Path:
        """The broker's journal."""
        return self.folder / "broker"

    @property
    def broker_config(self) -> Path:
        """The broker's configuration; written anew at each start."""
        return self.folder / "broker.toml"

    @property
    def card_lock(self) -> Path:
        """The file whose lock stands for the card."""
        return self.folder / "card.lock"

    @property
    def card_ledger(self) -> Path:
        """Who was on the card, and when: a line each."""
        return self.folder / "card.ledger"

    @property
    def environment(self) -> Path:
        """The settings, for the command line."""
        return self.folder / "voxint.env"

    @property
    def ports(self) -> Path:
        """The ports that were chosen."""
        return self.run / "ports.json"

    @property
    def children(self) -> Path:
        """The processes that were started last, so that what is left of them can be found."""
        return self.run / "children.json"

    def make(self) -> None:
        """Make the folders, for their owner alone.

        Raises:
            HomeError: a folder cannot be made or written to.
        """
        folder = self.folder
        if not str(folder).isprintable():
            raise HomeError(f"cannot use {str(folder)!a} as data folder: its path must be plain text in one line")
        try:
            for folder in (self.folder, self.media, self.run, self.logs, self.broker):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.card_lock.touch(mode=0o600)
        except OSError as error:
            raise HomeError(f"cannot use {folder} as data folder: {error.strerror or error}") from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise HomeError(f"cannot use {self.folder} as data folder: it may not be written to")

    @contextlib.contextmanager
    def sole_use(self) -> Iterator[None]:
        """Keep every other standalone Voxint off this folder, until the end or this process's death.

        Raises:
            InUseError: somebody else has it.
        """
        path = self.run / "standalone.lock"
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUseError(self.folder, _pid(file.read())) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                file.seek(0)
                file.truncate(0)

    def runs_as(self) -> int | None:
        """The process that has the folder now; None where nobody has."""
        try:
            with self.sole_use():
                return None
        except InUseError as error:
            return error.pid or -1
        except OSError:
            return None

    def choose_ports(self, names: tuple[str, ...], preferred: Mapping[str, int]) -> dict[str, int]:
        """A port for each name: the one of last time, unless a stranger has taken it; else a free one, kept from now on."""
        kept = _numbers(self.ports)
        chosen: dict[str, int] = {}
        for name in names:
            taken = {port for other, port in {**kept, **chosen}.items() if other != name}
            wanted = [port for port in (kept.get(name), preferred.get(name)) if port]
            usable = (port for port in (*wanted, *self._candidates()) if port not in taken and self._usable(port))
            try:
                chosen[name] = next(usable)
            except StopIteration:
                raise HomeError(f"no free port on {LOOPBACK} for {name}") from None
        write_privately(self.ports, json.dumps(chosen, indent=2) + "\n")
        return chosen

    def _candidates(self) -> Iterator[int]:
        begin = int.from_bytes(hashlib.sha256(os.fsencode(self.folder)).digest()[:4], "big")
        return (_FIRST_PORT + (begin + step) % _PORTS for step in range(_PORTS))

    def _usable(self, port: int) -> bool:
        return is_free(port) or any(self.owns(process) for process in _listeners(port))

    def owns(self, process: psutil.Process) -> bool:
        """Whether a model process was started for this folder: its environment names the folder's lock."""
        try:
            return bool(process.environ().get("CARD_LOCK") == str(self.card_lock))
        except (psutil.Error, OSError):
            return False


def is_free(port: int) -> bool:
    """Whether a server could listen on a loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def write_privately(path: Path, text: str) -> None:
    """Replace a file at once; only its owner may read it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _listeners(port: int) -> Iterator[psutil.Process]:
    try:
        connections = psutil.net_connections("tcp4")
    except (psutil.Error, OSError):
        return
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            with contextlib.suppress(psutil.Error):
                yield psutil.Process(connection.pid)


def _numbers(path: Path) -> dict[str, int]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: port for name, port in value.items() if isinstance(port, int) and 0 < port < 65_536}


def _pid(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
