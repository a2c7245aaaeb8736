"""Does a service really answer? One bounded request; an open port alone is no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint_broker.asking import AskError, ask

if TYPE_CHECKING:
    from voxint_broker.config_services import Ready


def why_not_ready(ready: Ready) -> str | None:
    """Ask once. None when the service is ready, else what is missing."""
    method = "GET" if ready.body is None else "POST"
    try:
        said = ask(ready.url, ready.answer_seconds, method=method, body=ready.body)
    except AskError as error:
        return str(error)
    if said.status not in ready.status:
        return f"{ready.url} answers {said.status}"
    if ready.contains and ready.contains.encode() not in said.body:
        return f"{ready.url} answers, but without {ready.contains!r}"
    return None
