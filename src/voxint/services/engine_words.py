"""Words for what a container engine answers, or why it gives no answer: a reason and what to do about it.

Libraries below the engine's client have errors of their own, of many classes: only the chain of causes tells.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean
from voxint.services.causes import causes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT_SOCKET = "unix:///var/run/docker.sock"

_HINTS = (
    ("could not select device driver", "the NVIDIA container toolkit is not set up on this host"),
    ("unknown device", "GPU_DEVICE_IDS names a card that is not there (nvidia-smi -L lists them)"),
    ("unresolvable CDI devices", "GPU_DEVICE_IDS names a card that is not there (nvidia-smi -L lists them)"),
    ("nvidia-container-cli", "the NVIDIA driver or its container toolkit does not work on this host (nvidia-smi)"),
    ('custom device "/dev/kfd"', "this host has no /dev/kfd (the amdgpu driver is not loaded)"),
    ('custom device "/dev/dri"', "this host has no /dev/dri (no graphics driver is loaded)"),
)
"""What is missing on the host, by what the engine says when a container does not start. The first that fits counts."""


def no_answer(error: BaseException, host: str) -> str:
    """Why the engine at `host` could not be asked, and what to do."""
    where = host.removeprefix("unix://")
    for cause in causes(error):
        match cause:
            case FileNotFoundError():
                return f"no Docker socket at {where}: is it mounted (compose.gpu-phase.yaml), and is Docker running?"
            case PermissionError():
                return f"no permission for the Docker socket {where}: set DOCKER_GID to its group (stat -c %g {where})"
            case ConnectionRefusedError():
                return f"the Docker daemon at {where} refused the connection: is it running?"
            case socket.gaierror():
                return f"the host name of the Docker daemon at {where} does not resolve"
            case TimeoutError():
                return f"the Docker daemon at {where} did not answer in time"
    return clean(f"the Docker daemon at {where} gave no usable answer: {said(error)}")


def said(error: BaseException) -> str:
    """What the engine itself said of a call that it refused, or the error's own words."""
    explanation = getattr(error, "explanation", None)
    if isinstance(explanation, bytes):
        explanation = explanation.decode(errors="replace")
    return clean(str(explanation or error) or type(error).__name__)


def start_refused(error: BaseException) -> str:
    """Why a container could not be started: what the host lacks, where that is known, then the engine's own words."""
    words = said(error)
    hint = next((hint for sign, hint in _HINTS if sign in words), None)
    return clean(f"could not be started: {hint}: {words}" if hint else f"could not be started: {words}")


def is_answer(error: BaseException) -> bool:
    """Whether the engine answered, though not what was asked for."""
    return getattr(error, "status_code", None) is not None


def ended(name: str, state: Mapping[str, Any]) -> str:
    """How a container that does not run came to its end."""
    status = state.get("Status")
    if status == "created":
        return f"container {name} has not been started"
    if status != "exited":
        return f"container {name} is {status}"
    code = state.get("ExitCode")
    text = f"container {name} exited" if code in {0, None} else f"container {name} exited with code {code}"
    if state.get("OOMKilled"):
        text += " (it ran out of memory)"
    why = state.get("Error")
    return clean(f"{text}: {why}" if why else text)


def runs(name: str, state: Mapping[str, Any]) -> str:
    """What a container does that runs, or that may at any moment."""
    status = state.get("Status")
    health = (state.get("Health") or {}).get("Status")
    if status != "running" or health in {None, "", "none"}:
        return f"container {name} is {status}"
    return f"container {name} is running ({health})"


def last_check(state: Mapping[str, Any]) -> str:
    """What the container's own health check printed last, in one short line."""
    log = (state.get("Health") or {}).get("Log") or []
    output = log[-1].get("Output") if log and isinstance(log[-1], dict) else None
    return clean(str(output))[:120] if output else ""
