"""Checks of this machine: room for media, the Docker socket, and what the settings say of the hardware."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.reasons import clean
from voxint.services.docker import DockerControl

if TYPE_CHECKING:
    from voxint.doctor.checks import Surroundings
    from voxint.settings import Settings

GIB = 1 << 30
FAIL_BELOW = GIB, 0.05
"""Less free space than both is a failure: bytes, and a share of the disk (small disks are not always full)."""
WARN_BELOW = 10 * GIB, 0.10


def settings_words(settings: Settings) -> str:
    """What the settings say, in a line."""
    sharing = "GPU sharing on" if settings.gpu_phase_enabled else "GPU sharing off"
    tier = f"tier {settings.compute_tier}"
    if settings.compute_tier == "simulated":
        tier += " (there is no GPU: a lock file stands for the card)"
    return f"{sharing}, {tier}, service control {settings.service_control}"


def dwell(around: Surroundings) -> list[Finding]:
    """A min dwell that a single tick uses up: while recordings wait, the language model's jobs never begin."""
    settings = around.parts.settings
    policy = settings.policy
    if not policy.enabled or not settings.llm_endpoints or policy.min_dwell > policy.tick:
        return []
    text = (
        f"GPU_PHASE_MIN_DWELL_SECONDS ({policy.min_dwell.total_seconds():g}) is not above GPU_PHASE_TICK_SECONDS"
        f" ({policy.tick.total_seconds():g}): while recordings wait, the tick that finds the language model ready gives"
        " the GPU away again, and its jobs never get a turn. Set it to a few minutes"
    )
    return [Finding("min dwell", Severity.WARN, text)]


def media_folder(around: Surroundings) -> list[Finding]:
    """The media folder is there, can be written, and has room."""
    folder = around.parts.settings.media_root
    shown = str(folder.absolute())
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return [Finding("media folder", Severity.FAIL, f"{shown}: {error.strerror}. MEDIA_ROOT names it")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Finding("media folder", Severity.FAIL, f"{shown} cannot be written by this user (uid {os.getuid()})")]
    left = f"{shown}: {size(usage.free)} of {size(usage.total)} free"
    return [Finding("media folder", room(usage.free, usage.total), left)]


def room(free: int, total: int) -> Severity:
    """Whether so many free bytes of so many are enough."""
    if free < min(FAIL_BELOW[0], total * FAIL_BELOW[1]):
        return Severity.FAIL
    return Severity.WARN if free < min(WARN_BELOW[0], total * WARN_BELOW[1]) else Severity.OK


def size(number: int) -> str:
    """Bytes as people read them."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{number / (1 << 20):.0f} MiB"


def docker(around: Surroundings) -> list[Finding]:
    """Where Docker starts and stops the services: whether it answers here, and what else of ours wants the GPU."""
    settings = around.parts.settings
    if settings.service_control != "docker" or not settings.gpu_phase_enabled:
        why = "GPU sharing is off" if not settings.gpu_phase_enabled else f"SERVICE_CONTROL={settings.service_control}"
        return [Finding("docker socket", Severity.OFF, f"not used: {why}")]
    control = around.parts.services
    if not isinstance(control, DockerControl):  # pragma: no cover - the settings say which control it is
        return []
    path = control.host.removeprefix("unix://")
    if path != control.host and not Path(path).exists():
        text = f"there is no {path} here. Only the gpu-phase worker needs it: run doctor in its container to check it"
        return [Finding("docker socket", Severity.OFF, text)]
    problem = control.unreachable()
    if problem is not None:
        text = f"{problem}. The model services cannot be started or stopped from here"
        return [Finding("docker socket", Severity.FAIL, text)]
    found = [Finding("docker socket", Severity.OK, f"{control.host} answers")]
    others = control.other_gpu_containers()
    if others:
        text = (
            f"{', '.join(others)} reserves a GPU beside the turns: name its service in GPU_PHASE_SERVICES, or stop it"
        )
        found.append(Finding("gpu containers", Severity.FAIL, clean(text)))
    return found
