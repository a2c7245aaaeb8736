"""From a service's configuration to its adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from voxint_broker.adapters.child import Child
from voxint_broker.adapters.command import Command
from voxint_broker.adapters.docker import Docker
from voxint_broker.adapters.sleeper import Sleeper
from voxint_broker.adapters.systemd import Systemd
from voxint_broker.config_services import (
    ChildService,
    CommandService,
    ComposeService,
    DockerService,
    HttpService,
    SystemdService,
)

if TYPE_CHECKING:
    from voxint_broker.adapters.protocol import Adapter
    from voxint_broker.config_services import AnyService


def adapter_of(config: AnyService, owner: str) -> Adapter:
    """The adapter of a service. `owner` marks this broker's child processes."""
    match config:
        case ChildService():
            return Child(config, owner)
        case CommandService():
            return Command(config)
        case SystemdService():
            return Systemd(config)
        case DockerService() | ComposeService():
            return Docker(config)
        case HttpService():
            return Sleeper(config, adapter_of(config.owner, owner) if config.owner is not None else None)
        case _:
            assert_never(config)
