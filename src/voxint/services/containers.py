"""The containers of a compose project as values, and what they say about a service. Pure.

Whatever has the shape of no container raises here, where the engine's answer is read, and nowhere later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxint.gpu_phase.model import Condition, ServiceSeen
from voxint.gpu_phase.reasons import clean
from voxint.services import engine_words
from voxint.services.states import NEEDS_RECREATING, engine_condition, together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
NUMBER_LABEL = "com.docker.compose.container-number"
ONE_OFF_LABEL = "com.docker.compose.oneoff"

GRACE_SECONDS = 10
"""How long the engine lets a container stop, where the container sets nothing itself."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the engine's list of containers."""

    id: str
    service: str
    status: str


@dataclass(frozen=True, slots=True)
class Container:
    """One container as it was inspected just now."""

    id: str
    name: str
    number: str
    one_off: bool
    created: str
    grace_seconds: int
    state: Mapping[str, Any]

    @property
    def status(self) -> str:
        """The engine's own word for what it does."""
        return str(self.state.get("Status", ""))

    @property
    def condition(self) -> Condition:
        """What that means for the GPU."""
        return engine_condition(self.status)

    @property
    def health(self) -> Mapping[str, Any]:
        """What its own health check says; empty where it has none."""
        return self.state.get("Health") or {}


@dataclass(frozen=True, slots=True)
class Look:
    """What the engine says: containers by service, and why something could not be asked."""

    containers: Mapping[str, tuple[Container, ...]]
    problems: Mapping[str, str]


def listed(items: Iterable[Mapping[str, Any]], project: str) -> tuple[Listed, ...]:
    """The project's own among the listed containers: the label is compared whole, whatever the engine's filter did."""
    return tuple(
        Listed(str(item["Id"]), _label(item, SERVICE_LABEL), str(item.get("State", "")))
        for item in items
        if _label(item, PROJECT_LABEL) == project
    )


def inspected(id_: str, document: Mapping[str, Any]) -> Container:
    """A container from the engine's inspection.

    Raises:
        TypeError: it has not the shape of one.
    """
    config, state = document.get("Config") or {}, document.get("State")
    if not isinstance(state, dict) or not isinstance(state.get("Health") or {}, dict):
        msg = "the inspection of a container names no state"
        raise TypeError(msg)
    grace = config.get("StopTimeout")
    return Container(
        id=id_,
        name=name_of(id_, document),
        number=_label(config, NUMBER_LABEL),
        one_off=_label(config, ONE_OFF_LABEL).lower() == "true",
        created=str(document.get("Created", "")),
        grace_seconds=grace if isinstance(grace, int) else GRACE_SECONDS,
        state=state,
    )


def name_of(id_: str, document: Mapping[str, Any]) -> str:
    """The name that people know a container by."""
    return str(document.get("Name", id_)).removeprefix("/")


def seen(name: str, look: Look) -> ServiceSeen:
    """A service's condition: one container that runs makes it run, one that could not be asked keeps it unknown."""
    containers = look.containers.get(name, ())
    running = [container for container in containers if container.condition is Condition.RUNNING]
    if running:
        return ServiceSeen(name, Condition.RUNNING, detail=_words(running, engine_words.runs))
    if name in look.problems:
        return ServiceSeen(name, Condition.UNKNOWN, detail=look.problems[name])
    if not containers:
        return ServiceSeen(name, Condition.STOPPED, detail="has no container")
    condition = together(container.condition for container in containers)
    return ServiceSeen(name, condition, detail=_words(containers, engine_words.ended))


def to_start(containers: Iterable[Container]) -> tuple[Container, ...]:
    """The newest container of each number: a scaled service has several, a recreate that was cut leaves twins.

    One-off runs (`docker compose run`) are somebody else's, and are never started.
    """
    newest: dict[str, Container] = {}
    for container in sorted(containers, key=lambda one: one.created):
        if not container.one_off:
            newest[container.number] = container
    return tuple(newest.values())


def startable(chosen: Iterable[Container]) -> tuple[Container, ...]:
    """Those that a start, or an unpause, can bring up."""
    return tuple(one for one in chosen if one.status not in {"running", "restarting", *NEEDS_RECREATING})


def reserves_gpu(document: Mapping[str, Any]) -> bool:
    """Whether a container may use a GPU, by what it was made with."""
    host = document.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    if any("gpu" in group for request in requests for group in request.get("Capabilities") or ()):
        return True
    devices = [str(device.get("PathOnHost", "")) for device in host.get("Devices") or ()]
    return host.get("Runtime") == "nvidia" or any(
        path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri")) for path in devices
    )


def _words(containers: Iterable[Container], word: Callable[[str, Mapping[str, Any]], str]) -> str:
    return clean("; ".join(word(container.name, container.state) for container in containers))


def _label(holder: Mapping[str, Any], label: str) -> str:
    return str((holder.get("Labels") or {}).get(label, ""))
