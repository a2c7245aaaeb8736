"""What an engine's or a process table's words mean for the GPU: stopped, running or unknown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable

_STOPPED = frozenset({"created", "exited", "dead", "removing", "configured", "initialized", "stopped"})
"""No process is left. `dead` and `removing` too: an engine says so only once the process has ended."""

_RUNNING = frozenset({"running", "restarting", "paused", "stopping"})
"""A process may hold GPU memory: a paused one holds all of it, a restarting one is about to be back."""

NEEDS_RECREATING = frozenset({"dead", "removing"})
"""States that a start can never leave: the container has to be made anew."""


def engine_condition(status: str) -> Condition:
    """The condition behind a container engine's status word (Docker's and Podman's).

    A word that is not known is not taken for stopped.
    """
    word = status.strip().lower()
    if word in _STOPPED:
        return Condition.STOPPED
    return Condition.RUNNING if word in _RUNNING else Condition.UNKNOWN


def together(conditions: Iterable[Condition]) -> Condition:
    """The condition of a service that several containers or processes stand for; none of them is stopped.

    One that runs makes the service run. One that could not be asked keeps it from being stopped.
    """
    seen = set(conditions)
    for condition in (Condition.RUNNING, Condition.UNKNOWN):
        if condition in seen:
            return condition
    return Condition.STOPPED


NOT_READY_KEYS = ("ready", "healthy", "loaded", "model_loaded")
"""Keys of a health answer that say no when they are false."""

_READY_WORDS = frozenset(
    {"ok", "okay", "healthy", "ready", "up", "pass", "passing", "running", "alive", "success", "true"}
)


def not_ready_because(body: object) -> str | None:
    """Why a health answer's JSON body says that the service is not ready, or None where it does not say so.

    Ours answer `{"status": "ok", ...}`. Foreign services say nothing, or use a word of their own: a `status` that is
    a word for ready passes, any other word does not, so that one that still loads is never taken for ready.
    """
    if not isinstance(body, dict):
        return None
    for key in NOT_READY_KEYS:
        if body.get(key) is False:
            return f"{key} is false"
    if body.get("error"):
        return f"error: {_message(body['error'])}"
    status = body.get("status")
    if isinstance(status, str) and status.strip().lower() not in _READY_WORDS:
        detail = body.get("detail")
        return f"status is {_short(status)}" + (f": {_short(detail)}" if isinstance(detail, str) and detail else "")
    if status is False:
        return "status is false"
    return None


def _message(error: object) -> str:
    """OpenAI's form has the words within; others send them as they are."""
    words = error.get("message") if isinstance(error, dict) else error
    return words[:120] if isinstance(words, str) and words else _short(error)


def _short(value: object) -> str:
    return repr(value) if len(repr(value)) <= 120 else repr(value)[:117] + "..."
