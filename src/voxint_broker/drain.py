"""Is a service at work? So that what it is doing may end before it is stopped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from voxint_broker import bounded
from voxint_broker.asking import AskError, ask

if TYPE_CHECKING:
    from voxint_broker.config_services import Drain

_VLLM_COUNT = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})?\s+([0-9.eE+]+)\s*$", re.MULTILINE)


def busy(drain: Drain) -> tuple[bool | None, str]:
    """Whether it is at work (None: that cannot be told), and what with."""
    if drain.kind == "command" and drain.command is not None:
        ran = bounded.run(drain.command, drain.answer_seconds)
        if ran.status in {0, 1}:
            return ran.status == 1, "its command says that it is at work" if ran.status else ""
        return None, ran.problem
    url = (drain.url or "").rstrip("/")
    try:
        return _slots(url, drain.answer_seconds) if drain.kind == "llama.cpp" else _metrics(url, drain.answer_seconds)
    except AskError as error:
        return None, str(error)


def _slots(url: str, seconds: float) -> tuple[bool | None, str]:
    """llama.cpp's server: GET /slots is a list, and each slot has is_processing; seen on the server itself."""
    said = ask(f"{url}/slots", seconds)
    slots = said.json()
    if said.status != 200 or not isinstance(slots, list) or not all(isinstance(slot, dict) for slot in slots):
        return None, f"{url}/slots answers {said.status}, and no list of slots"
    at_work = sum(slot.get("is_processing") is True or slot.get("state") == 1 for slot in slots)
    return at_work > 0, f"{at_work} of {len(slots)} slots at work"


def _metrics(url: str, seconds: float) -> tuple[bool | None, str]:
    """vLLM: GET /metrics has vllm:num_requests_running and _waiting (its page "Production Metrics")."""
    said = ask(f"{url}/metrics", seconds)
    counts = _VLLM_COUNT.findall(said.body.decode("utf-8", "replace")) if said.status == 200 else []
    if not counts:
        return None, f"{url}/metrics answers {said.status}, without the counts of requests"
    at_work = sum(float(count) for count in counts)
    return at_work > 0, f"{at_work:.0f} requests at work"
