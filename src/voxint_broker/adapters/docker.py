"""A container, or all containers of a compose service, through the Docker engine's own socket.

Written from the engine's API reference, version 1.41: /containers/json, /containers/ID/json, /stop, /kill, /start,
and the stream of /events.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from voxint_broker import clock
from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel
from voxint_broker.config_services import ComposeService

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from voxint_broker.config_services import DockerService

_LOOK_AGAIN_SECONDS = 0.01
_FOLLOW_AGAIN_SECONDS = 5.0
_ONE_OFF_LABEL = "com.docker.compose.oneoff"
_NOT_RUNNING = frozenset({"created", "exited", "dead"})


class _EngineConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self, path: str, seconds: float | None) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Docker:
    """Containers that are one service."""

    def __init__(self, config: DockerService | ComposeService) -> None:
        self.name = config.name
        self.keep_running = bool(config.keep_running)
        self.quick = False
        self._config = config
        self._last = ""
        self._stopping: threading.Thread | None = None
        self._stop_problem = ""

    def reconfigure(self, config: DockerService | ComposeService) -> None:
        """Go on with other numbers."""
        self._config = config

    def adopt(self, handle: dict[str, Any]) -> None:
        """Nothing to find: the engine knows."""

    def handle(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def watch(self, wake: Callable[[], None]) -> None:
        """The engine tells of every start and end."""
        threading.Thread(target=self._watch_events, args=(wake,), daemon=True, name=f"events-of-{self.name}").start()

    def look(self) -> Look:
        """Running when any of them runs, is paused or restarts; a container that is not there does not run."""
        try:
            states = self._states()
        except ServiceError as error:
            return Look(Condition.UNKNOWN, str(error))
        if not states:
            return Look(Condition.STOPPED, f"there is no container of {self._what()}")
        up = {name: state for name, state in states.items() if state["Status"] not in _NOT_RUNNING}
        if up:
            words = ", ".join(f"{name} is {state['Status']}" for name, state in up.items())
            words += f" ({self._stop_problem})" if self._stop_problem else ""
            return Look(Condition.RUNNING, words, tuple(state["Pid"] for state in up.values() if state.get("Pid")))
        self._last = ", ".join(f"{name}: exit status {state.get('ExitCode')}" for name, state in states.items())
        return Look(Condition.STOPPED, self._last)

    def sweep(self) -> Look:
        """The engine knows."""
        return self.look()

    def levels(self) -> tuple[StopLevel, ...]:
        """The engine's stop with a grace, then SIGKILL."""
        return (
            StopLevel("docker stop", self._config.stop_seconds + 1),
            StopLevel("SIGKILL", self._config.kill_seconds),
        )

    def stop(self, level: StopLevel) -> None:
        """Tell the engine, without waiting for it: `docker stop` only answers when it is over."""
        self._stop_problem = ""
        found = self._containers()
        if level.name == "SIGKILL":
            for name, which in found.items():
                status, said = self._call("POST", f"/containers/{quote(which)}/kill?signal=SIGKILL")
                if status not in {204, 404, 409}:
                    raise ServiceError(f"the engine does not kill {name}: {said}")
            return
        grace = round(self._config.stop_seconds)
        self._stopping = threading.Thread(target=self._stop_all, args=(found, grace), daemon=True, name="docker-stop")
        self._stopping.start()

    def start(self) -> None:
        """Start every container, but those of `docker compose run`: they did what they were made for."""
        found = self._containers(one_off=False)
        if not found:
            raise ServiceError(f"there is no container of {self._what()}: create it first")
        for name, which in found.items():
            status, said = self._call("POST", f"/containers/{quote(which)}/start", seconds=60)
            if status not in {204, 304}:
                raise ServiceError(f"the engine does not start {name}: {said}")

    def wait(self, seconds: float) -> None:
        """Wait for the engine's answer to a stop, else a little."""
        if self._stopping is not None and self._stopping.is_alive():
            self._stopping.join(seconds)
            return
        select.select([], [], [], max(seconds, _LOOK_AGAIN_SECONDS))

    def last_words(self) -> str:
        """The exit status."""
        return self._last

    # --- parts -------------------------------------------------------------------------------------------------

    def _stop_all(self, containers: dict[str, str], grace: int) -> None:
        deadline = clock.monotonic() + grace
        for name, which in containers.items():
            left = max(round(deadline - clock.monotonic()), 0)
            try:
                status, said = self._call("POST", f"/containers/{quote(which)}/stop?t={left}", seconds=grace + 30)
            except ServiceError as error:
                self._stop_problem = str(error)
                continue
            if status not in {204, 304, 404}:
                self._stop_problem = f"the engine does not stop {name}: {said}"

    def _watch_events(self, wake: Callable[[], None]) -> None:
        pause = threading.Event()
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._follow_events(wake)
            pause.wait(_FOLLOW_AGAIN_SECONDS)

    def _follow_events(self, wake: Callable[[], None]) -> None:
        """Read the engine's stream, a JSON object a line, until it ends."""
        if isinstance(self._config, ComposeService):
            what = {"label": self._labels(self._config)}
        else:
            what = {"container": [self._config.container]}
        wanted = {"type": ["container"], "event": ["start", "die", "unpause"], **what}
        connection = _EngineConnection(str(self._config.socket), None)
        try:
            connection.request("GET", "/events?filters=" + quote(json.dumps(wanted)))
            response = connection.getresponse()
            while response.status == 200 and response.readline():
                wake()
        finally:
            connection.close()

    def _what(self) -> str:
        if isinstance(self._config, ComposeService):
            return f"service {self._config.service} of the compose project {self._config.project}"
        return f"the name {self._config.container}"

    @staticmethod
    def _labels(config: ComposeService) -> list[str]:
        return [
            f"com.docker.compose.project={config.project}",
            f"com.docker.compose.service={config.service}",
        ]

    def _containers(self, *, one_off: bool = True) -> dict[str, str]:
        """By name, what each is called by; `one_off`: with those of `docker compose run`, which hold memory as others do."""
        if not isinstance(self._config, ComposeService):
            return {self._config.container: self._config.container}
        filters = quote(json.dumps({"label": self._labels(self._config)}))
        status, found = self._call("GET", "/containers/json?all=1&filters=" + filters)
        if status != 200 or not isinstance(found, list):
            raise ServiceError(f"the engine does not list containers: {found}")
        return {_name(each): str(each["Id"]) for each in found if one_off or not _is_one_off(each)}

    def _states(self) -> dict[str, Mapping[str, Any]]:
        states = {}
        for name, which in self._containers().items():
            status, found = self._call("GET", f"/containers/{quote(which)}/json")
            if status == 404:
                continue
            if status != 200 or not isinstance(found, dict) or "Status" not in found.get("State", {}):
                raise ServiceError(f"the engine does not tell how {name} is: {found}")
            states[name] = found["State"]
        return states

    def _call(self, method: str, path: str, seconds: float | None = None) -> tuple[int, Any]:
        connection = _EngineConnection(str(self._config.socket), seconds or self._config.look_seconds)
        try:
            connection.request(method, path, headers={"Content-Length": "0"} if method == "POST" else {})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            why = (
                error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
            )
            raise ServiceError(f"cannot ask the Docker engine at {self._config.socket}: {why}") from error
        finally:
            connection.close()
        try:
            value = json.loads(body) if body else None
        except ValueError:
            value = body[:200].decode("utf-8", "replace")
        if response.status >= 400 and isinstance(value, dict):
            value = value.get("message", value)
        return response.status, value


def _name(listed: Mapping[str, Any]) -> str:
    """What people call a container by; one that is being removed has no name any more."""
    names = listed.get("Names") or [str(listed["Id"])[:12]]
    return str(names[0]).lstrip("/")


def _is_one_off(listed: Mapping[str, Any]) -> bool:
    return str((listed.get("Labels") or {}).get(_ONE_OFF_LABEL, "")).lower() == "true"
