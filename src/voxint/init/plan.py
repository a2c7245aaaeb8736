"""PURE: from what was found and what was answered, the values of `.env` and the compose files that they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from voxint.init.machine import Machine

TIERS = ("cpu", "gpu", "rocm")
CAN_SHARE = ("gpu", "rocm")
DEFAULT_BROKER = "http://host.docker.internal:9100"
HOST_ALIAS = "host.docker.internal"
"""What containers call the host. On the host itself nobody knows that name."""

_GROUP_OF = {
    name: f"There is no {node}: put {name}, its group once it is there (stat -c %g {node}), into .env yourself."
    for name, node in (("RENDER_GID", "/dev/dri/renderD128"), ("VIDEO_GID", "/dev/kfd"))
}


@dataclass(frozen=True, slots=True)
class Answers:
    """What only a person knows. Empty where it does not apply."""

    tier: str
    sharing: bool
    broker: str = ""
    """The broker's base address; the three paths of the contract are added to it."""
    token: str = ""
    llm: str = ""
    """The language model's OpenAI-compatible base address."""
    password: str = ""
    """The console's; empty where one is made."""


def values(machine: Machine, answers: Answers, known: Mapping[str, str], secret: Callable[[], str]) -> dict[str, str]:
    """What is to be set, in the order of the file.

    Args:
        machine: what was found.
        answers: what was answered.
        known: what the file holds already. Secrets in it stay: the database keeps the password of its first start.
        secret: makes a new random text.
    """
    found: dict[str, str] = {
        "COMPOSE_FILE": ":".join(compose_files(answers)),
        "COMPUTE_TIER": answers.tier,
    }
    if "POSTGRES_PASSWORD" not in known and not known:
        found["POSTGRES_PASSWORD"] = secret()
    if answers.password or not {"CONSOLE_PASSWORD", "CONSOLE_PASSWORD_FILE"} & set(known):
        found["CONSOLE_PASSWORD"] = answers.password or secret()
    if answers.llm:
        found["LLM_BASE_URL"] = answers.llm
    if machine.zone and "TZ" not in known:
        found["TZ"] = machine.zone
    found |= _groups(machine, answers)
    found["GPU_PHASE_ENABLED"] = str(answers.sharing).lower()
    if answers.sharing:
        found |= lease_addresses(answers.broker)
        if answers.token:
            found["GPU_LEASE_TOKEN"] = answers.token
    return found


def _groups(machine: Machine, answers: Answers) -> dict[str, str]:
    groups = {}
    if answers.sharing and machine.docker_gid is not None:
        groups["DOCKER_GID"] = str(machine.docker_gid)
    if answers.tier == "rocm":
        if machine.render_gid is not None:
            groups["RENDER_GID"] = str(machine.render_gid)
        if machine.video_gid is not None:
            groups["VIDEO_GID"] = str(machine.video_gid)
    return groups


def lease_addresses(base: str) -> dict[str, str]:
    """The broker's three addresses."""
    base = base.rstrip("/")
    return {f"GPU_LEASE_{name.upper()}_URL": f"{base}/gpu/{name}" for name in ("acquire", "release", "status")}


def compose_files(answers: Answers) -> tuple[str, ...]:
    """The files of this set-up, in compose's order."""
    overlay = ("compose.gpu-phase.yaml",) if answers.sharing else ()
    return ("compose.yaml", f"compose.{answers.tier}.yaml", *overlay)


def seen_from_the_host(url: str) -> str:
    """An address that containers use, as a program on the host must write it."""
    parts = urlsplit(url)
    if parts.hostname != HOST_ALIAS:
        return url
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=f"127.0.0.1{port}"))


def missing(machine: Machine, answers: Answers) -> list[str]:
    """What this set-up needs and the host does not have, a sentence each; nothing of it keeps the file from being written."""
    found = []
    if answers.tier not in {"cpu", machine.tier}:
        driver = "NVIDIA driver (nvidia-smi prints nothing)" if answers.tier == "gpu" else "AMD driver (/dev/kfd)"
        found.append(f"This host has no {driver}: install it before the first start.")
    if answers.sharing and machine.docker_gid is None:
        found.append(
            f"There is no {machine.docker_socket}: put DOCKER_GID, the group of the Docker socket, into .env yourself."
        )
    if answers.tier == "rocm":
        lacking = {"RENDER_GID": machine.render_gid, "VIDEO_GID": machine.video_gid}
        found += [_GROUP_OF[name] for name, group in lacking.items() if group is None]
        found.append("Put WHISPER_IMAGE, a whisper server built for ROCm, into .env: docs/how-to/rocm.md.")
    return found
