"""A server that stays, and gives its GPU memory back when told: vLLM, Ollama, llama-swap, llama.cpp's router.

docs/reference/broker-adapters.md names the page or source, and its commit, from which each of them is written, and what
of it was tried on the server itself. What matters here:
vLLM aborts what is in flight when it goes to sleep, so it is drained before; at level 2 it forgets its weights, and is
given them again between the two halves of waking up. Ollama takes keep_alive 0 at once, but unloads a model only when
its last request is done, so its own unloading is its drain. llama-swap lists only what is ready, and unloads also what
it only begins to load, at once and whatever is in flight. llama.cpp's router ends the model's process.
"""

from __future__ import annotations

import json
import select
from typing import TYPE_CHECKING, Any, assert_never

from voxint_broker.adapters.protocol import Condition, Look, ServiceError, StopLevel
from voxint_broker.asking import AskError, Said, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_broker.adapters.protocol import Adapter
    from voxint_broker.config_services import HttpService

_LOOK_AGAIN_SECONDS = 0.05
_LOAD_SECONDS = 600.0
_IN_MEMORY = frozenset({"loaded", "loading", "sleeping"})
"""States of a model of llama.cpp's router in which its process is there."""


class Sleeper:
    """A server that is put to sleep. Where that does not free the memory, its owner stops it altogether."""

    def __init__(self, config: HttpService, owner: Adapter | None) -> None:
        self.name = config.name
        self.keep_running = bool(config.keep_running)
        self.quick = False
        self.owner = owner
        self.asleep_seconds = config.asleep_seconds
        self._config = config
        self._url = config.url.rstrip("/")

    def reconfigure(self, config: HttpService) -> None:
        """Go on with other numbers."""
        self._config = config
        self._url = config.url.rstrip("/")
        self.asleep_seconds = config.asleep_seconds
        if self.owner is not None and config.owner is not None:
            self.owner.reconfigure(config.owner)

    def adopt(self, handle: dict[str, Any]) -> None:
        """Its owner finds what it must."""
        if self.owner is not None:
            self.owner.adopt(handle)

    def handle(self) -> dict[str, Any]:
        """What its owner keeps."""
        return self.owner.handle() if self.owner is not None else {}

    def watch(self, wake: Callable[[], None]) -> None:
        """What its owner notices."""
        if self.owner is not None:
            self.owner.watch(wake)

    def look(self) -> Look:
        """Running: something is in the GPU's memory. Stopped: its owner says that it is gone."""
        owned = self.owner.look() if self.owner is not None else None
        if owned is not None and (owned.condition is Condition.STOPPED or owned.leftover):
            return owned
        try:
            loaded = self._loaded()
        except AskError as error:
            return Look(Condition.UNKNOWN, str(error))
        if loaded:
            return Look(Condition.RUNNING, f"in its memory: {', '.join(loaded)}")
        return Look(Condition.ASLEEP)

    def sweep(self) -> Look:
        """The server knows, or its owner."""
        owned = self.owner.sweep() if self.owner is not None else None
        if owned is not None and owned.condition is Condition.STOPPED:
            return owned
        look = self.look()
        if self._config.server == "llama-swap" and look.condition is Condition.ASLEEP:
            try:
                self._unload()
            except AskError as error:
                return Look(Condition.UNKNOWN, str(error))
        return look

    def levels(self) -> tuple[StopLevel, ...]:
        """Sleep, then the ways of its owner."""
        owned = self.owner.levels() if self.owner is not None else ()
        return (StopLevel("sleep", self._config.stop_seconds), *owned)

    def stop(self, level: StopLevel) -> None:
        """Tell it to sleep, or its owner to stop it."""
        if level.name != "sleep" and self.owner is not None:
            self.owner.stop(level)
            return
        try:
            self._unload()
        except AskError as error:
            raise ServiceError(str(error)) from error

    def start(self) -> None:
        """Start it where it is gone, and wake it where it sleeps."""
        if self.owner is not None and self.owner.look().condition is Condition.STOPPED:
            self.owner.start()
            return
        try:
            self._load()
        except AskError as error:
            raise ServiceError(str(error)) from error

    def wait(self, seconds: float) -> None:
        """Wait a little."""
        select.select([], [], [], max(seconds, _LOOK_AGAIN_SECONDS))

    def last_words(self) -> str:
        """What its owner knows."""
        return self.owner.last_words() if self.owner is not None else ""

    # --- the servers -------------------------------------------------------------------------------------------

    def _loaded(self) -> list[str]:
        """What is in the memory."""
        match self._config.server:
            case "vllm":
                sleeping = self._json("/is_sleeping").get("is_sleeping")
                if not isinstance(sleeping, bool):
                    raise AskError(f"{self._url}/is_sleeping does not say whether it sleeps")
                return [] if sleeping else ["the model"]
            case "ollama":
                return [str(each.get("model") or each.get("name")) for each in self._list("/api/ps", "models")]
            case "llama-swap":
                return [str(each.get("model")) for each in self._list("/running", "running")]
            case "llama.cpp":
                return [
                    str(each.get("id"))
                    for each in self._list("/models", "data")
                    if isinstance(each.get("status"), dict) and each["status"].get("value") in _IN_MEMORY
                ]
            case _:
                assert_never(self._config.server)

    def _unload(self) -> None:
        match self._config.server:
            case "vllm":
                self._post(f"/sleep?level={self._config.level}", None, self._config.stop_seconds)
            case "ollama":
                for model in self._loaded():
                    self._post("/api/generate", {"model": model, "keep_alive": 0}, self._config.stop_seconds)
            case "llama-swap":
                self._good(ask(f"{self._url}/unload", self._config.stop_seconds, key=self._key()), "/unload")
            case "llama.cpp":
                for model in self._loaded():
                    self._post("/models/unload", {"model": model}, self._config.stop_seconds)
            case _:
                assert_never(self._config.server)

    def _load(self) -> None:
        match self._config.server:
            case "vllm" if self._config.level == 2:
                self._post("/wake_up?tags=weights", None, _LOAD_SECONDS)
                self._post("/collective_rpc", {"method": "reload_weights"}, _LOAD_SECONDS)
                self._post("/wake_up?tags=kv_cache", None, _LOAD_SECONDS)
            case "vllm":
                self._post("/wake_up", None, _LOAD_SECONDS)
            case "ollama":
                for model in self._config.models:
                    self._post("/api/generate", {"model": model}, _LOAD_SECONDS)
            case "llama.cpp":
                for model in self._config.models:
                    self._post("/models/load", {"model": model}, _LOAD_SECONDS)
            case "llama-swap":
                pass  # loads what is asked for, when it is asked: the readiness request does it
            case _:
                assert_never(self._config.server)

    def _key(self) -> str | None:
        return self._config.api_key.get_secret_value() if self._config.api_key is not None else None

    def _post(self, path: str, body: object, seconds: float) -> None:
        text = None if body is None else json.dumps(body)
        self._good(ask(self._url + path, seconds, method="POST", body=text, key=self._key()), path)

    def _good(self, said: Said, path: str) -> None:
        if not 200 <= said.status < 300:
            text = " ".join(said.body[:200].decode("utf-8", "replace").split())
            raise AskError(f"{self._url}{path} answers {said.status}{': ' + text if text else ''}")

    def _json(self, path: str) -> dict[str, Any]:
        said = ask(self._url + path, self._config.answer_seconds, key=self._key())
        self._good(said, path)
        value = said.json()
        if not isinstance(value, dict):
            raise AskError(f"{self._url}{path} does not answer with a JSON object")
        return value

    def _list(self, path: str, name: str) -> list[dict[str, Any]]:
        value = self._json(path).get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise AskError(f"{self._url}{path} does not list its {name}")
        return value
