"""Starts child processes that end when this process ends, however it ends.

On Linux the kernel sends a child SIGKILL once the *thread* that started it is gone: start tethered children from the main
thread only. Elsewhere there is no such thing, and a child outlives a killed parent until the next start finds it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1


def tether(death_signal: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """What a child does between fork and exec to be tied to this process; None where the system has no such thing."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    number = int(death_signal)
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died in between: the signal will never come
            os._exit(1)

    return tie


def start(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a tethered child in a session of its own, so that a Ctrl-C reaches its parent alone; its output goes to a file."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=tether(death_signal),  # noqa: PLW1509 - one system call, looked up before the fork
        )
