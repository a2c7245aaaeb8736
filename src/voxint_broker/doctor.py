"""What could go wrong with a configuration, looked at before it does. Nothing is stopped or started."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from voxint_broker.adapters.making import adapter_of
from voxint_broker.adapters.protocol import Condition
from voxint_broker.config import ConfigError, host_of, token_of
from voxint_broker.config_services import (
    ChildService,
    CommandService,
    ComposeService,
    DockerService,
    HttpService,
    SystemdService,
)
from voxint_broker.journal import Journal
from voxint_broker.memory.gauges import gauge_of
from voxint_broker.ready import why_not_ready
from voxint_broker.record import JournalError, State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxint_broker.config import Config
    from voxint_broker.config_services import AnyService

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR: an interface's IPv4 address."""


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warn"
    FAILURE = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    code: str
    severity: Severity
    text: str


def examine(config: Config) -> list[Finding]:
    """Look at everything that a configuration names."""
    findings = [
        *_token(config),
        *_state_dir(config.state_dir),
        *_memory(config),
        *_bridge(config),
    ]
    for service in config.service:
        findings += _service(service, config)
    findings.append(
        Finding("one-voxint", Severity.OK, "one broker serves one Voxint: two of them would count as the same holder")
    )
    return findings


def _token(config: Config) -> Iterator[Finding]:
    try:
        token = token_of(config)
    except ConfigError as error:
        yield Finding("token", Severity.FAILURE, str(error))
        return
    text = "calls need the token" if token else "calls need no token: whoever reaches the address can switch the GPU"
    yield Finding("token", Severity.OK if token else Severity.WARNING, text)


def _state_dir(folder: Path) -> Iterator[Finding]:
    above = folder
    while not os.path.exists(above):  # noqa: PTH110 - Path.exists raises where a folder above may not be entered
        above = above.parent
    if not os.access(above, os.W_OK | os.X_OK):
        yield Finding("state-dir", Severity.FAILURE, f"cannot write to {above}: the journal cannot be kept")
        return
    try:
        record = Journal(folder).read()
    except JournalError as error:
        yield Finding("state-dir", Severity.FAILURE, str(error))
        return
    if record is None:
        yield Finding("state-dir", Severity.OK, f"{folder} has no journal yet")
        return
    bad = record.state in {State.ERROR, State.EXPIRED}
    text = f"the journal in {folder} says {record.state.value}{': ' + record.reason if record.reason else ''}"
    yield Finding("state-dir", Severity.WARNING if bad else Severity.OK, text)


def _memory(config: Config) -> Iterator[Finding]:
    reading = gauge_of(config.memory).read()
    if config.memory.kind == "none":
        yield Finding(
            "memory", Severity.WARNING, "the GPU's memory is not read: a grant only proves that processes ended"
        )
    elif reading.enough is None:
        yield Finding(
            "memory", Severity.FAILURE, f"the GPU's memory cannot be read, so nothing is granted: {reading.detail}"
        )
    else:
        yield Finding("memory", Severity.OK, f"the GPU's memory can be read: {reading.detail}")


def _bridge(config: Config) -> Iterator[Finding]:
    """Containers reach the host by the bridge's address, and not by loopback."""
    address = interface_address("docker0")
    if address is None:
        return
    hosts = {host_of(place) for place in config.listen}
    if hosts & {address, "0.0.0.0", "::"}:  # noqa: S104 - it is compared, and not bound
        yield Finding("bridge", Severity.OK, f"containers reach the broker at {address} (host.docker.internal)")
    else:
        port = config.listen[0].rpartition(":")[2]
        yield Finding(
            "bridge",
            Severity.WARNING,
            f'containers cannot reach the broker: add "{address}:{port}" to listen if Voxint runs in containers',
        )


def interface_address(name: str) -> str | None:
    """The IPv4 address of a network interface; None when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _service(service: AnyService, config: Config) -> Iterator[Finding]:
    yield from _rights(service)
    handles = {}
    try:
        record = Journal(config.state_dir).read()
        handles = record.handles if record is not None else {}
    except JournalError:
        pass  # told above
    adapter = adapter_of(service, config.owner_mark)
    adapter.adopt(handles.get(service.name, {}))
    look = adapter.look()
    severity = Severity.FAILURE if look.condition is Condition.UNKNOWN else Severity.OK
    detail = f" ({look.detail})" if look.detail else ""
    yield Finding("service", severity, f"{service.name}: {look.condition.value}{detail}")
    if service.readiness is not None and look.condition is Condition.RUNNING:
        missing = why_not_ready(service.readiness)
        severity = Severity.OK if missing is None else Severity.WARNING
        yield Finding("ready", severity, f"{service.name}: {'really answers' if missing is None else missing}")


def _rights(service: AnyService) -> Iterator[Finding]:
    """Whether it could be stopped and started, as far as that can be seen without doing it."""
    for program in _programs(service):
        if shutil.which(program) is None:
            yield Finding("rights", Severity.FAILURE, f"{service.name}: there is no program {program}")
    if isinstance(service, SystemdService) and os.geteuid() != 0 and not service.user:
        text = f"{service.name}: stopping a unit as an ordinary user needs a polkit rule; see the example"
        yield Finding("rights", Severity.WARNING, text)
    if isinstance(service, DockerService | ComposeService) and not os.access(service.socket, os.R_OK | os.W_OK):
        yield Finding("rights", Severity.FAILURE, f"{service.name}: may not use {service.socket}")
    if isinstance(service, HttpService):
        if service.owner is not None:
            yield from _rights(service.owner)
            return
        text = f"{service.name}: no [service.owner], so where sleeping does not free the memory nothing is granted"
        yield Finding("rights", Severity.WARNING, text)


def _programs(service: AnyService) -> list[str]:
    match service:
        case ChildService():
            return [service.command[0]]
        case CommandService():
            return [argv[0] for argv in (service.start, service.stop, service.running, service.kill) if argv]
        case SystemdService():
            return [service.systemctl[0]]
        case _:
            return []


def plan(config: Config) -> list[str]:
    """What a switch would do, in words, a line each."""
    lines = ["acquire:"]
    lines.append(f"  read the memory ({config.memory.kind}); while it is unknown nothing is stopped")
    for service in reversed(config.service):
        adapter = adapter_of(service, config.owner_mark)
        if service.drain is not None:
            lines.append(f"  {service.name}: wait up to {service.drain.limit_seconds:g} s for its work in flight")
        levels = ", then ".join(f"{level.name} ({level.seconds:g} s)" for level in adapter.levels())
        lines.append(f"  {service.name} ({service.kind}): {levels}")
    lines.append(
        f"  prove that the memory is free: {config.memory.readings} readings in a row within "
        f"{config.memory.limit_seconds:g} s, then grant"
    )
    lines.append("release:")
    lines.append("  prove that the memory is free")
    for service in config.service:
        ready = service.readiness
        until = f" until {ready.url} answers, at most {ready.limit_seconds:g} s" if ready is not None else ""
        lines.append(f"  {service.name} ({service.kind}): start, and wait{until}")
    return lines
