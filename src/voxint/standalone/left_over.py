"""What a supervisor that was killed has left: halves of its children, and model processes that nobody looks after."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import psutil

from voxint.standalone.home import write_privately
from voxint.standalone.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.standalone.home import Home

STOP_SECONDS = 10.0
"""How long a model process may take to end by itself."""


def remember(home: Home, sessions: Iterable[int]) -> None:
    """Write down the sessions of the children: each child leads its own."""
    write_privately(home.children, json.dumps(sorted(sessions)) + "\n")


def end_children(home: Home) -> int:
    """End what lives on in the sessions of children whose supervisor was killed, such as a worker's pool. Gives how many.

    Model processes have sessions of their own: they are left alone, and adopted.
    """
    sessions = set(_remembered(home))
    found = [process for process in psutil.process_iter() if _session(process) in sessions and _is_of(process, home)]
    _kill(found)
    return len(found)


def end_models(home: Home, limit_seconds: float = STOP_SECONDS) -> list[str]:
    """Stop the model processes of this folder, politely first. Gives what they were."""
    found = [process for process in psutil.process_iter() if home.owns(process) and _is_model(process)]
    names = [_words(process) for process in found]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    wait_for(lambda: not any(_alive(process) for process in found), limit_seconds)
    _kill([process for process in found if _alive(process)])
    return names


def _remembered(home: Home) -> list[int]:
    try:
        value = json.loads(home.children.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [number for number in value if isinstance(number, int)] if isinstance(value, list) else []


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _is_of(process: psutil.Process, home: Home) -> bool:
    """A session's number may have gone to a stranger since: only what was started for this folder counts."""
    try:
        return bool(process.pid != os.getpid() and process.environ().get("VOXINT_HOME") == str(home.folder))
    except (psutil.Error, OSError):
        return False


def _is_model(process: psutil.Process) -> bool:
    try:
        return any(str(word).startswith("voxint_models.") for word in process.cmdline())
    except (psutil.Error, OSError):
        return False


def _words(process: psutil.Process) -> str:
    try:
        name = next(word for word in process.cmdline() if word.startswith("voxint_models."))
    except (psutil.Error, OSError, StopIteration):
        name = "a model process"
    return f"{name} ({process.pid})"


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_for(lambda: not any(_alive(process) for process in processes), 5)
