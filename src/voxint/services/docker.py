"""Model services as containers of one compose project, over the Docker Engine's API.

Nothing is remembered from one call to the next: each asks the engine anew for the containers that carry the project's
and the service's labels, whatever they are called. What a call did is never judged by its answer, but by a fresh look.
"""

from __future__ import annotations

import functools
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import docker
from docker.utils import kwargs_from_env

from voxint.gpu_phase.model import Condition, ServiceSeen
from voxint.gpu_phase.reasons import clean
from voxint.services import engine_words, turn_file
from voxint.services.containers import (
    PROJECT_LABEL,
    SERVICE_LABEL,
    Container,
    Listed,
    Look,
    inspected,
    listed,
    name_of,
    reserves_gpu,
    seen,
    startable,
    to_start,
)
from voxint.services.engine_words import DEFAULT_SOCKET
from voxint.services.health import with_health
from voxint.services.parallel import Calls, StillAtWorkError, at_once
from voxint.services.states import NEEDS_RECREATING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from voxint.settings import Settings

LOOK_SECONDS = 5.0
"""Longest that a look at all containers takes, the engine's slowest answer included."""

CHANGE_SECONDS = 5.0
"""Longest that one call of `start` or `stop` waits for containers; what takes longer goes on, and is looked at again."""

_SPARE_SECONDS = 60  # an engine that is busy may take this much longer than the grace

_log = logging.getLogger(__name__)
_changes: Calls[None] = Calls()
"""Starts and stops of this process that go on. A second stop would send a second signal and begin the grace anew."""


class _Api(docker.APIClient):  # type: ignore[misc]  # the SDK has no types
    """The SDK's client, which the environment's proxies do not apply to; it negotiates the version when it is made."""

    trust_env = property(lambda _self: False, lambda _self, _value: None)


class DockerControl:
    """The configured services as containers. Never raises."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        look_seconds: float = LOOK_SECONDS,
        change_seconds: float = CHANGE_SECONDS,
    ) -> None:
        """Take the settings, and DOCKER_HOST and its kind from the environment. Nothing is asked yet."""
        self._services = settings.services
        self._project = settings.compose_project_name
        self._turn: Path | None = settings.gpu_turn_file
        self._environ = dict(environ)
        self._look_seconds = look_seconds
        self._change_seconds = change_seconds

    @property
    def host(self) -> str:
        """Where the engine is asked."""
        return self._environ.get("DOCKER_HOST") or DEFAULT_SOCKET

    def inspect(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, as the engine says it now."""
        look = self._look()
        return tuple(seen(name, look) for name in self._services)

    def health(self) -> tuple[ServiceSeen, ...]:
        """The condition of each, and whether it answers over HTTP.

        A container's own health check can only take away: what it calls `unhealthy` is not healthy. `starting`, or no
        check at all, leaves it to the HTTP answer, which is newer than the engine's last check.
        """
        look = self._look()
        answered = with_health((seen(name, look) for name in self._services), self._services)
        return tuple(self._joined(service, look.containers.get(service.name, ())) for service in answered)

    def start(self, only: Collection[str] | None = None) -> dict[str, str]:
        """Start the containers that do not run; of twins that stand for one another, the newest alone.

        Args:
            only: the services meant; all by default.
        """
        names = self._names(only)
        try:
            if self._turn is not None:
                turn_file.give_leave(self._turn)
        except OSError as error:
            why = clean(f"could not be started: cannot write the turn file {self._turn}: {error.strerror or error}")
            return dict.fromkeys(names, why)
        look = self._look()
        failures = {name: look.problems[name] for name in names if name in look.problems}
        calls: dict[str, tuple[str, Callable[[], None]]] = {}
        for name in names:
            if name not in failures:
                chosen = to_start(look.containers[name])
                why_not = self._cannot_start(name, chosen)
                if why_not is not None:
                    failures[name] = why_not
                calls |= {f"start {c.id}": (name, functools.partial(self._start, c)) for c in startable(chosen)}
        done = _changes.at_once({key: call for key, (_, call) in calls.items()}, self._change_seconds)
        for key, result in done.items():
            if isinstance(result, Exception) and not isinstance(result, StillAtWorkError):
                answered = engine_words.is_answer(result)
                failures[calls[key][0]] = engine_words.start_refused(result) if answered else self._no_answer(result)
        return failures

    def stop(self, only: Collection[str] | None = None) -> None:
        """Begin to stop every container that may hold the GPU, all at the same time; twins and one-off runs too.

        Each gets its own grace. What came of it is for `inspect` to say.

        Args:
            only: the services meant; all by default.
        """
        if self._turn is not None:
            turn_file.take_leave(self._turn)
        look = self._look()
        containers = [
            container
            for name in self._names(only)
            for container in look.containers.get(name, ())
            if container.condition is not Condition.STOPPED
        ]
        calls = {f"stop {container.id}": functools.partial(self._stop, container) for container in containers}
        names = {f"stop {container.id}": container.name for container in containers}
        for key, result in _changes.at_once(calls, self._change_seconds).items():
            if isinstance(result, Exception) and not isinstance(result, StillAtWorkError):
                _log.warning("cannot stop container %s: %s", names[key], self._no_answer(result))

    def unreachable(self) -> str | None:
        """Why the engine cannot be asked, for doctor; None where it answers."""
        result = at_once({"ping": self._list}, self._look_seconds)["ping"]
        return self._no_answer(result) if isinstance(result, Exception) else None

    def other_gpu_containers(self) -> tuple[str, ...]:
        """Running containers of this project that reserve a GPU, and that sharing does not know of.

        Empty where the engine cannot be asked: `unreachable` says so.
        """
        items = at_once({"list": self._list}, self._look_seconds)["list"]
        if isinstance(items, Exception):
            return ()
        others = {
            item.id: functools.partial(self._reserves, item.id)
            for item in items
            if item.service not in self._services and item.status == "running"
        }
        looked = at_once(others, self._look_seconds)
        return tuple(sorted(name for name in looked.values() if isinstance(name, str)))

    def log(self, name: str, lines: int) -> list[str]:
        """The newest lines that a service printed, oldest first, with the engine's times. Empty where none can be had."""
        found = self._look().containers.get(name, ())
        calls = {container.id: functools.partial(self._log, container.id, lines) for container in found}
        texts = at_once(calls, self._look_seconds).values()
        return [line for text in texts if isinstance(text, str) for line in text.splitlines()]

    # --- looking -----------------------------------------------------------------------------------------------

    def _names(self, only: Collection[str] | None) -> tuple[str, ...]:
        return tuple(name for name in self._services if only is None or name in only)

    def _look(self) -> Look:
        """List the project's containers in one call, then inspect each of ours: the list may be a moment old."""
        items = at_once({"list": self._list}, self._look_seconds)["list"]
        if isinstance(items, Exception):
            why = self._no_answer(items)
            return Look({}, dict.fromkeys(self._services, why))
        ours = {item.id: item.service for item in items if item.service in self._services}
        wanted = {id_: functools.partial(self._inspect, id_) for id_ in ours}
        found: dict[str, list[Container]] = {name: [] for name in self._services}
        problems: dict[str, str] = {}
        for id_, result in at_once(wanted, self._look_seconds).items():
            match result:
                case Container():
                    found[ours[id_]].append(result)
                case Exception():
                    problems[ours[id_]] = self._no_answer(result)
                case None:  # removed since it was listed
                    pass
        return Look({name: tuple(containers) for name, containers in found.items()}, problems)

    def _list(self) -> tuple[Listed, ...]:
        filters = {"label": [f"{PROJECT_LABEL}={self._project}", SERVICE_LABEL]}
        with self._api(self._look_seconds) as api:
            return listed(api.containers(all=True, filters=filters), self._project)

    def _inspect(self, id_: str) -> Container | None:
        document = self._document(id_)
        return None if document is None else inspected(id_, document)

    def _document(self, id_: str) -> dict[str, Any] | None:
        try:
            with self._api(self._look_seconds) as api:
                document: dict[str, Any] = api.inspect_container(id_)
        except docker.errors.NotFound:
            return None
        return document

    def _reserves(self, id_: str) -> str | None:
        document = self._document(id_) or {}
        return name_of(id_, document) if reserves_gpu(document) else None

    def _joined(self, service: ServiceSeen, containers: Iterable[Container]) -> ServiceSeen:
        """The HTTP answer together with what the engine's own check says, or with why the container ended."""
        for container in containers:
            if container.condition is Condition.RUNNING:
                if container.health.get("Status") == "unhealthy":
                    why = f"container {container.name} is unhealthy by its own check"
                    printed = engine_words.last_check(container.state)
                    detail = clean(f"{why}: {printed}" if printed else why)
                    return replace(service, healthy=False, detail=detail)
            elif service.condition is Condition.STOPPED and container.state.get("ExitCode"):
                line = self._last_line(container)
                return replace(service, detail=clean(f"{service.detail}: {line}") if line else service.detail)
        return service

    def _last_line(self, container: Container) -> str:
        def read() -> str:
            with self._api(self._look_seconds) as api:
                return bytes(api.logs(container.id, tail=1)).decode(errors="replace").strip()

        line = at_once({"log": read}, self._look_seconds)["log"]
        return line if isinstance(line, str) else ""

    def _log(self, id_: str, lines: int) -> str:
        with self._api(self._look_seconds) as api:
            return bytes(api.logs(id_, timestamps=True, tail=lines)).decode(errors="replace")

    # --- changing ----------------------------------------------------------------------------------------------

    def _cannot_start(self, name: str, chosen: tuple[Container, ...]) -> str | None:
        if not chosen:
            return clean(
                f"there is no container of it in the compose project {self._project}: "
                f"make it with `docker compose ... up --no-start {name}`, with the same -f files as the stack"
            )
        for container in chosen:
            if container.status in NEEDS_RECREATING:
                return clean(
                    f"container {container.name} is {container.status} and cannot be started: "
                    f"make it anew with `docker compose ... up --no-start --force-recreate {name}`"
                )
        return None

    def _start(self, container: Container) -> None:
        with self._api(_SPARE_SECONDS) as api:
            if container.status == "paused":
                api.unpause(container.id)
            else:
                api.start(container.id)

    def _stop(self, container: Container) -> None:
        with self._api(container.grace_seconds + _SPARE_SECONDS) as api:
            api.stop(container.id)

    def _api(self, timeout_seconds: float) -> _Api:
        options = kwargs_from_env(environment=self._environ)
        options.setdefault("base_url", DEFAULT_SOCKET)
        _try_socket(options["base_url"], timeout_seconds)
        return _Api(**options, version="auto", timeout=timeout_seconds)

    def _no_answer(self, error: Exception) -> str:
        if engine_words.is_answer(error):
            return clean(f"the Docker daemon at {self.host} answers: {engine_words.said(error)}")
        return engine_words.no_answer(error, self.host)


def _try_socket(host: str, timeout_seconds: float) -> None:
    """Connect once before the SDK does: it never closes a unix socket that it could not connect.

    Raises:
        OSError: nobody answers there, or we may not.
    """
    scheme, found, path = host.partition("unix://")
    if found and not scheme:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_seconds)
            probe.connect("/" + path.lstrip("/"))
