"""Three hosts on one machine: network namespaces, and a wire from each of two hosts to the servers' one.

The test's own process becomes the servers' host: it leaves the machine's network for a namespace of its own, so nothing
here can meet an address or a port of the machine. A wire is a pair of virtual Ethernet devices. It can be cut, as a cable
is pulled: no packet arrives, and nobody is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from voxint.standalone.valkey import EmbeddedValkey

SERVERS = "10.77.0.1"
"""The servers' address: on no wire, so that each host reaches it over its own."""
_NEW_NETWORK, _NEW_USER = 0x4000_0000, 0x1000_0000
_libc = ctypes.CDLL(None, use_errno=True)


class CannotError(RuntimeError):
    """This machine, or this user, may not make network namespaces: why."""


def leave_the_network() -> None:
    """Give this process a network of its own; an ordinary user needs a user namespace for it.

    Raises:
        CannotError: it may not.
    """
    missing = [program for program in ("ip", "nsenter", "unshare") if shutil.which(program) is None]
    if missing:
        raise CannotError(f"needs {' and '.join(missing)} (Debian: iproute2, util-linux)")
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER) != 0:
        why = os.strerror(ctypes.get_errno())
        raise CannotError(f"the kernel gives user {user} no network namespace: {why} (try it as root)")
    if user:
        Path("/proc/self/setgroups").write_text("deny", "utf-8")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", "utf-8")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", "utf-8")
    try:
        _ip("link", "set", "lo", "up")
        _ip("address", "add", f"{SERVERS}/32", "dev", "lo")
    except subprocess.CalledProcessError as error:
        raise CannotError(f"cannot set up the network namespace: {error.stderr.strip()}") from error


def _ip(*words: str, through: tuple[str, ...] = ()) -> None:
    subprocess.run([*through, "ip", *words], check=True, capture_output=True, text=True)


@dataclass
class Host:
    """A host with a wire to the servers, and no other way to them."""

    name: str
    number: int
    keeper: subprocess.Popen

    @property
    def words(self) -> tuple[str, ...]:
        """What a command begins with to run there."""
        return ("nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "--")

    @property
    def wire(self) -> str:
        """The wire's end at the servers."""
        return f"wire-{self.number}"

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.wire, "down")

    def mend(self) -> None:
        """Put it in again."""
        _ip("link", "set", self.wire, "up")
        self._give_address()

    def _give_address(self) -> None:
        _ip("address", "replace", f"10.77.{self.number}.1/24", "dev", self.wire)


@contextlib.contextmanager
def host(name: str, number: int):
    """A host, whose namespace lasts as long as its keeper: a process that only sleeps.

    Raises:
        CannotError: no wire can be made here.
    """
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], start_new_session=True)
    made = Host(name, number, keeper)
    try:
        own = Path("/proc/self/ns/net").readlink()
        end = time.monotonic() + 30
        while Path(f"/proc/{keeper.pid}/ns/net").readlink() == own:
            if keeper.poll() is not None or time.monotonic() > end:
                raise CannotError("unshare made no network namespace")
            time.sleep(0.02)
        try:
            _ip("link", "add", made.wire, "type", "veth", "peer", "name", "cable", "netns", str(keeper.pid))
        except subprocess.CalledProcessError as error:
            raise CannotError(f"cannot make a pair of virtual Ethernet devices: {error.stderr.strip()}") from error
        made.mend()
        _ip("link", "set", "lo", "up", through=made.words)
        _ip("address", "add", f"10.77.{number}.2/24", "dev", "cable", through=made.words)
        _ip("link", "set", "cable", "up", through=made.words)
        _ip("route", "add", SERVERS, "via", f"10.77.{number}.1", through=made.words)
        yield made
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # a namespace goes late, and its wire with it
            _ip("link", "delete", made.wire)
        keeper.kill()
        keeper.wait()


class ValkeyOnTheWire(EmbeddedValkey):
    """A Valkey that hosts reach over their wires; it listens on no other address."""

    @property
    def argv(self) -> list[str]:
        """How it is started."""
        return [*super().argv, "--port", "6379", "--bind", SERVERS, "--protected-mode", "no"]


POSTGRES_ON_THE_WIRE = {"listen_addresses": SERVERS, "fsync": "off"}
HBA = "local all all trust\nhost all all 10.77.0.0/16 trust\n"
"""Who may come in: the hosts, whose network is nobody else's."""
DATABASE_URL = f"postgresql://postgres@{SERVERS}:5432/voxint"
REDIS_URL = f"redis://{SERVERS}:6379/0"
