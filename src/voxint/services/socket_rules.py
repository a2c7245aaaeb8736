"""What the socket proxy lets through to the Docker Engine: which calls, about whose containers. Pure.

The Engine's API is root on the host for whoever may use all of it. The gpu-phase worker needs eight calls, on the
containers of one compose project: to list and inspect them, to read a log's end, to start, unpause and stop the model
services. Nothing else passes, and what passes is written anew rather than copied.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from voxint.services.containers import PROJECT_LABEL, SERVICE_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LONGEST_GRACE_SECONDS = 600
LONGEST_LOG_LINES = 20_000
"""A tick reads the newest 2000 to see on which device a service came up, `voxint placement log` as many as it gets."""

_PATH = re.compile(r"(?P<version>/v1\.\d{1,3})?(?P<rest>/[a-z_]+(?:/[0-9a-f]{12,64})?(?:/[a-z]+)?)")
_PLAIN = frozenset({("GET", "/_ping"), ("HEAD", "/_ping"), ("GET", "/version")})
_READ = frozenset({"json", "logs"})
_CHANGE = frozenset({"start", "stop", "unpause"})


@dataclass(frozen=True, slots=True)
class Passed:
    """A call as it is sent on. `container` is to be checked first; `change` says that it must be a model service's."""

    method: str
    target: str
    container: str | None = None
    change: bool = False

    @property
    def inspects(self) -> bool:
        """Whether the answer is a container's inspection, of which only a part is passed back."""
        return self.method == "GET" and self.container is not None and self.target.endswith("/json")


def passed(method: str, path: str, query: str, project: str) -> Passed | None:
    """The call that goes on to the engine for this one, or None where it is not allowed."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    version, rest = found["version"] or "", found["rest"]
    if (method, rest) in _PLAIN:
        return Passed(method, version + rest)
    if (method, rest) == ("GET", "/containers/json"):
        filters = json.dumps({"label": [f"{PROJECT_LABEL}={project}", SERVICE_LABEL]})
        return Passed(method, f"{version}/containers/json?all=1&filters={quote(filters)}")
    parts = rest.split("/")
    if len(parts) != 4 or parts[1] != "containers":
        return None
    container, verb = parts[2], parts[3]
    options = _options(verb, parse_qs(query))
    target = version + rest + (f"?{urlencode(options)}" if options else "")
    if method == "GET" and verb in _READ:
        return Passed(method, target, container)
    if method == "POST" and verb in _CHANGE:
        return Passed(method, target, container, change=True)
    return None


def _options(verb: str, query: Mapping[str, list[str]]) -> dict[str, str]:
    """The few parameters that mean no harm, within bounds."""
    if verb == "logs":
        tail = query.get("tail", [""])[0]
        lines = min(int(tail), LONGEST_LOG_LINES) if tail.isascii() and tail.isdigit() else LONGEST_LOG_LINES
        times = {"timestamps": "1"} if query.get("timestamps") == ["1"] else {}
        return {"stdout": "1", "stderr": "1", "tail": str(lines), **times}
    grace = query.get("t", [""])[0]
    if verb == "stop" and grace.isascii() and grace.isdigit():
        return {"t": str(min(int(grace), LONGEST_GRACE_SECONDS))}
    return {}


def refusal(document: Mapping[str, Any], call: Passed, project: str, services: Collection[str]) -> str | None:
    """Why a call about this container is refused, or None where it is allowed."""
    labels = (document.get("Config") or {}).get("Labels") or {}
    if labels.get(PROJECT_LABEL) != project:
        return f"it is no container of the compose project {project}"
    if call.change and labels.get(SERVICE_LABEL) not in services:
        return "it is not one of GPU_PHASE_SERVICES"
    return None


_KEPT: dict[str, tuple[str, ...]] = {
    "Config": ("Labels", "StopTimeout", "Tty"),
    "HostConfig": ("DeviceRequests", "Devices", "Runtime"),
}


def without_secrets(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an inspection that the worker reads: the environment, with its secrets, is not in it."""
    kept = {name: document[name] for name in ("Id", "Name", "Created", "State") if name in document}
    for part, names in _KEPT.items():
        inside = document.get(part) or {}
        kept[part] = {name: inside[name] for name in names if name in inside}
    return kept
