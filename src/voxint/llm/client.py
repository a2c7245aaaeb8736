"""The client of the language model: one chat completion, with every odd answer turned into a typed failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from voxint.services.exchange import AbandonedError, Answer, ExchangeError, run, watched
from voxint.services.model_call import error_text, retry_after, said_in
from voxint.services.numbers import number
from voxint.storable import read_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from voxint.settings import Settings

ANSWER_BYTES = 16 << 20
PATIENCE = timedelta(minutes=2)
"""How long a model that has answered before, and is busy now, is waited for between two answers."""


class LlmError(Exception):
    """The language model gave no usable answer; the message carries its own words."""


class LlmBusyError(LlmError):
    """It is loading, or busy: ask again after `retry_in`."""

    def __init__(self, reason: str, retry_in: timedelta) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class LlmTooLongError(LlmError):
    """The text does not fit the model's window: send less."""


class LlmUnusableError(LlmError):
    """It answered, but with nothing that can be read: asking for the same again brings the same."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model wrote. `cut`: it stopped at its limit and not at its end."""

    text: str
    cut: bool
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None = None


def api_url(base: str, path: str) -> str:
    """An address of the OpenAI API below a base; a base without any path means /v1, as most servers have it."""
    trimmed = base.rstrip("/")
    return (trimmed if urlsplit(trimmed).path else trimmed + "/v1") + path


def auth_headers(settings: Settings) -> dict[str, str]:
    """The bearer token, where there is one."""
    key = settings.llm_api_key
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key and key.get_secret_value() else {}


class LlmClient:
    """Asks the endpoint of one feature, for one piece of work.

    A model that is busy before its first answer is the work's to wait for, in the queue. In the middle of the work it is
    waited for here: an endpoint that takes so many requests a minute would otherwise never be done with a long transcript,
    which would begin anew each time.

    Args:
        settings: addresses, the model's name, the token, the time limit.
        feature: one of settings.LLM_FEATURES.
    """

    def __init__(self, settings: Settings, feature: str) -> None:
        self._settings = settings
        base = settings.llm_feature_urls.get(feature) or settings.llm_base_url
        self._base = api_url(base, "") if base and settings.llm_enabled else None
        self._plain = False
        self._answered = False
        self._waited = timedelta(0)

    @property
    def configured(self) -> bool:
        """Whether there is an endpoint to ask, and language-model work is on."""
        return self._base is not None

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
        lost: threading.Event | None = None,
    ) -> Reply:
        """One completion, at temperature 0.

        Args:
            messages: role and content of each.
            max_tokens: the longest answer.
            schema: a JSON schema that the answer is to follow; a server that knows no schemas is asked without.
            lost: gives the call up when set.

        Raises:
            ExchangeError: there was no whole answer.
            LlmError: it was no usable one.
        """
        if self._base is None:
            raise LlmError("no language model is configured")
        body: dict[str, Any] = {
            "model": self._settings.llm_model,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": False,
        }
        if schema is not None and not self._plain:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        while True:
            try:
                reply = self._reply(body, lost)
            except LlmBusyError as error:
                if not self._answered or self._waited + error.retry_in > PATIENCE or lost is None:
                    raise
                self._waited += error.retry_in
                if lost.wait(error.retry_in.total_seconds()):
                    raise AbandonedError("given up: the work was taken back") from None
            else:
                self._answered, self._waited = True, timedelta(0)
                return reply

    def _reply(self, body: dict[str, Any], lost: threading.Event | None) -> Reply:
        answer = self._complete(body, lost)
        if answer.status in {400, 422} and "response_format" in body and not _says_too_long(answer):
            self._plain = True
            del body["response_format"]
            answer = self._complete(body, lost)
        return reply_in(answer)

    def _complete(self, body: Mapping[str, Any], lost: threading.Event | None) -> Answer:
        # The library takes a second to load: only a process that asks a language model pays for it.
        from voxint.llm.completion import complete  # noqa: PLC0415

        total = timedelta(seconds=self._settings.llm_timeout_seconds)
        asked = complete(self._base or "", auth_headers(self._settings), body, total, ANSWER_BYTES)
        return run(watched(asked, lost))


def reply_in(answer: Answer) -> Reply:
    """An answer as a reply.

    Raises:
        LlmError: what it is instead, with the server's words.
    """
    if answer.status != 200:
        raise _refusal(answer)
    try:
        document = read_json(answer.body)
    except ValueError:
        raise LlmUnusableError("the language model answered 200 with something that is no JSON") from None
    if not isinstance(document, dict):
        raise LlmUnusableError("the language model answered 200 with JSON that is no object")
    if document.get("error"):
        words = error_text(document)
        error = LlmTooLongError if _too_long(words) else LlmUnusableError
        raise error(f"the language model answered 200 with an error: {words}")
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    text = content_text(message.get("content")) if isinstance(message, dict) else None
    if text is None or first is None:
        raise LlmUnusableError("the language model answered 200 without a text")
    usage = document.get("usage")
    tokens = number(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    written = number(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    model = document.get("model")
    return Reply(
        text=text,
        cut=first.get("finish_reason") == "length",
        model=model if isinstance(model, str) else None,
        prompt_tokens=None if tokens is None else int(tokens),
        completion_tokens=None if written is None else int(written),
    )


def content_text(content: object) -> str | None:
    """A message's text; a list of parts is joined. None where there is no text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [each.get("text") for each in content if isinstance(each, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return None


def _refusal(answer: Answer) -> LlmError:
    said = said_in(answer)
    words = f"the language model answered {answer.status}" + (f": {said}" if said else "")
    if answer.status in {429, 503}:
        return LlmBusyError(words, retry_after(answer))
    if answer.status in {400, 413, 422} and _too_long(said):
        return LlmTooLongError(words)
    return LlmError(words)


def _says_too_long(answer: Answer) -> bool:
    return _too_long(said_in(answer))


def _too_long(words: str) -> bool:
    told = words.lower()
    return "context" in told or "too long" in told or "too many tokens" in told or "maximum" in told


__all__ = [
    "ExchangeError",
    "LlmBusyError",
    "LlmClient",
    "LlmError",
    "LlmTooLongError",
    "LlmUnusableError",
    "Reply",
    "api_url",
    "auth_headers",
    "content_text",
    "reply_in",
]
