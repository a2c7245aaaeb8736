"""Is the language model ready? A model list alone does not say so: a server lists what it is still loading."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import LlmSeen
from voxint.gpu_phase.reasons import clean
from voxint.llm.client import LlmError, api_url, auth_headers, reply_in
from voxint.services.exchange import Answer, Ask, ExchangeError, answer_to, run
from voxint.services.model_call import error_text, said_in
from voxint.storable import read_json

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.settings import LlmEndpoint, Settings

TOTAL = timedelta(seconds=10)
"""The limit on everything that one endpoint is asked in a tick."""
_LIMIT = 4 << 20


class LlmReadiness:
    """Asks every configured endpoint, all at the same time.

    The model list is asked each time. A one-token completion, which may cost money or wait behind other work, is asked
    until it first succeeds in a stay in `llm`, and again after any failure.

    Args:
        settings: the endpoints, the model's name and the token.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._answered: dict[str, datetime] = {}

    def probe(self, since: datetime) -> LlmSeen:
        """Ask all. `since` names the stay in llm. Never raises."""
        endpoints = self._settings.llm_endpoints
        if not endpoints:
            return LlmSeen(ready=True, detail="no language model is configured")
        try:
            problems = run(self._ask_all(endpoints, since))
        except Exception as error:  # noqa: BLE001 - a tick must go on whatever an answer does to a library
            return LlmSeen(ready=False, detail=clean(f"could not ask: {type(error).__name__}"))
        told = [f"{endpoint.name} {problem}" for endpoint, problem in zip(endpoints, problems, strict=True) if problem]
        return LlmSeen(ready=not told, detail=clean("; ".join(told)))

    async def _ask_all(self, endpoints: tuple[LlmEndpoint, ...], since: datetime) -> list[str | None]:
        return await asyncio.gather(*(self._ask(endpoint, since) for endpoint in endpoints))

    async def _ask(self, endpoint: LlmEndpoint, since: datetime) -> str | None:
        """What is wrong with one endpoint; None when it is ready."""
        try:
            async with asyncio.timeout(TOTAL.total_seconds()):
                problem = await self._problem(endpoint, since)
        except TimeoutError:
            problem = f"gave no answer within {TOTAL.total_seconds():g} s"
        except (ExchangeError, LlmError) as error:
            problem = str(error).removeprefix("the language model ")
        if problem is None:
            self._answered[endpoint.base_url] = since
        else:
            self._answered.pop(endpoint.base_url, None)
        return problem

    async def _problem(self, endpoint: LlmEndpoint, since: datetime) -> str | None:
        headers = auth_headers(self._settings)
        listed = await answer_to(Ask("GET", api_url(endpoint.base_url, "/models"), TOTAL, _LIMIT, headers=headers))
        problem = list_problem(listed)
        if problem is not None or self._answered.get(endpoint.base_url) == since:
            return problem
        body = {
            "model": self._settings.llm_model,
            "messages": [{"role": "user", "content": "Say ok."}],
            "max_tokens": 1,
            "stream": False,
        }
        url = api_url(endpoint.base_url, "/chat/completions")
        said = await answer_to(Ask("POST", url, TOTAL, _LIMIT, headers=headers, json=body))
        if said.status == 503:
            return _loading(said)
        return completion_problem(said)


def list_problem(answer: Answer) -> str | None:
    """What a /models answer says against the endpoint; None when it lists a model."""
    if answer.status == 503:
        return _loading(answer)
    if answer.status != 200:
        said = said_in(answer)
        hint = {
            401: "check LLM_API_KEY",
            403: "check LLM_API_KEY",
            404: "check the path of its address",
        }.get(answer.status)
        words = f"answered {answer.status} to /models" + (f": {said}" if said else "")
        return f"{words} ({hint})" if hint else words
    try:
        document = read_json(answer.body)
    except ValueError:
        return "answered /models with something that is no JSON"
    if isinstance(document, dict) and document.get("error"):
        return f"answered /models with an error: {error_text(document)}"
    listed = document.get("data") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return "answered /models with no list of models"
    return None if listed else "lists no model yet"


def completion_problem(answer: Answer) -> str | None:
    """What a one-token completion says against the endpoint. A model that thinks first may have written no text."""
    if answer.status != 200:
        said = said_in(answer)
        return f"answered {answer.status} to a completion" + (f": {said}" if said else "")
    try:
        reply_in(answer)
    except LlmError as error:
        return None if _thinks(answer) else str(error).removeprefix("the language model ")
    return None


def _thinks(answer: Answer) -> bool:
    try:
        document = read_json(answer.body)
        message = document["choices"][0]["message"]
        return message.get("content") in {None, ""} and "reasoning_content" in message
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False


def _loading(answer: Answer) -> str:
    said = said_in(answer)
    return "is loading (503" + (f": {said})" if said else ")")
