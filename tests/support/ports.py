"""Loopback ports for tests: free now, and not handed out to another test process while this one lives.

A port that the kernel gives for 0 comes from the range that outgoing connections draw from as well, and two test
processes that ask at the same moment can be given the same one after each other. These lie below that range, and a
lock on a file named after the port keeps every other test process off it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_LOWEST, _HIGHEST = 12_000, 32_000
_draw = random.SystemRandom()  # not seeded: two runs side by side must not walk through the same ports
_held: dict[int, int] = {}


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at, kept for this process until it ends."""
    folder = Path(tempfile.gettempdir()) / f"voxint-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = _draw.randrange(_LOWEST, _HIGHEST)
        if port in _held:
            continue
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        _held[port] = lock
        return port


def free_ports(count: int) -> list[int]:
    """So many of them."""
    return [free_port() for _ in range(count)]
