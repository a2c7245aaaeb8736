"""How a stand-in behaves: its delays and its failures, from the command line and, while it runs, from a JSON file."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SERVICES = ("whisper", "pyannote", "titanet", "language_model")
HEALTH_PATHS = ("/healthz", "/health")
QUIET_PATHS = (*HEALTH_PATHS, "/v1/models")
_CALL_ONLY = ("drop", "half", "stall", "status", "retry_after", "body", "content_type")


@dataclass(frozen=True)
class Behaviour:
    """Every switch. Times are seconds; a count of None means never."""

    start_seconds: float = 0.0
    """Until /healthz answers 200; before that it and every call answer 503."""
    start_fails: bool = False
    """Exit 1 in place of becoming ready."""
    stop_seconds: float = 0.0
    """How long the process lives on after SIGTERM; less ends it. It answers nothing in that time."""
    answer_seconds: float = 0.0
    """How long a call takes. Looked at again while it lasts: less ends it."""
    ignore_term: bool = False
    """SIGTERM does nothing: only SIGKILL ends it."""
    refuse: bool = False
    """Nobody listens: connections are refused. Taken back while it runs, it listens again."""
    refuse_after: int | None = None
    """The same after so many calls were answered."""
    die_after: int | None = None
    """The process is gone, in the middle of the call after so many, with exit status 1."""
    drop: bool = False
    """The connection is closed without a byte."""
    half: bool = False
    """Half of the answer, then the connection is closed."""
    stall: bool = False
    """The connection is accepted and nothing ever comes."""
    status: int | None = None
    """This status for every call, with an error body."""
    retry_after: int | None = None
    """Retry-After, in seconds, beside `status`."""
    health_status: int | None = None
    """This status for /healthz and /health."""
    body: str | None = None
    """This text in place of the answer."""
    content_type: str = "application/json"
    """The answer's content type."""
    device: str = "cpu"
    """What /healthz says the model is on."""


_FIELDS = {field.name: field for field in fields(Behaviour)}


class Behaviours:
    """The behaviour of this moment: the command line's, changed by what the control file says now.

    The file holds switches by name, for all services or under a service's name, and for single paths under `paths`:
    {"answer_seconds": 1, "whisper": {"status": 500}, "paths": {"/v1/models": {"status": 404}}}.
    """

    def __init__(self, service: str, start: Behaviour, control: Path | None) -> None:
        self._service = service
        self._start = start
        self._control = control
        self._text = ""
        self._document: dict[str, Any] = {}

    def at(self, path: str | None = None) -> Behaviour:
        """The behaviour for a call of this path. Health and the model list fail only where `paths` says so."""
        document = self._load()
        own = document.get(self._service)
        general = [document, own if isinstance(own, dict) else {}]
        changes = {name: value for layer in general for name, value in layer.items() if name in _FIELDS}
        behaviour = replace(self._start, **changes)
        if path in QUIET_PATHS:
            calm: dict[str, Any] = {name: _FIELDS[name].default for name in _CALL_ONLY}
            behaviour = replace(behaviour, **calm)
        for layer in general:
            paths = layer.get("paths")
            if isinstance(paths, dict) and isinstance(paths.get(path), dict):
                behaviour = replace(behaviour, **{k: v for k, v in paths[path].items() if k in _FIELDS})
        return behaviour

    def _load(self) -> dict[str, Any]:
        """A file that is not there, or half written, changes nothing.

        It is read each time: two changes within one tick of the file system's clock may leave the same time and size.
        """
        if self._control is None:
            return {}
        try:
            text = self._control.read_text(encoding="utf-8")
            if text != self._text:
                document = json.loads(text)
                if isinstance(document, dict):
                    self._document, self._text = document, text
        except FileNotFoundError:
            self._document, self._text = {}, ""
        except (OSError, ValueError):
            pass
        return self._document


def parser() -> argparse.ArgumentParser:
    """The command line: the service, where to listen, and every switch by its name with dashes."""
    made = argparse.ArgumentParser(
        prog="python -m voxint_models.stub",
        description="A stand-in for a model server. STUB_CONTROL names a JSON file that changes it while it runs.",
    )
    made.add_argument("service", choices=SERVICES)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, required=True)
    for field in _FIELDS.values():
        flag = "--" + field.name.replace("_", "-")
        if field.default is False:
            made.add_argument(flag, action="store_true")
        else:
            kind = float if isinstance(field.default, float) else int if field.default is None else str
            made.add_argument(flag, type=str if field.name == "body" else kind, default=field.default)
    return made


def behaviour_of(arguments: argparse.Namespace) -> Behaviour:
    """The switches of a parsed command line."""
    return Behaviour(**{name: getattr(arguments, name) for name in _FIELDS})
