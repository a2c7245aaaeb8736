"""Asks the language model about lines, batch by batch: smaller pieces where they do not fit, and the reason where not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from voxint.llm.client import LlmError, LlmTooLongError, LlmUnusableError
from voxint.recordings.errors import AttemptFailed
from voxint.recordings.stages.services import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from voxint.llm.client import LlmClient, Reply
    from voxint.recordings.stages.context import StageContext
    from voxint.recordings.transcript import Line

    Messages = list[dict[str, str]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What is asked about a batch of lines.

    Args:
        messages: the messages for a batch.
        read: an answer's text as a value; ValueError says why it is none.
        schema: the JSON schema of the answer.
        tokens: the longest answer for a batch.
    """

    messages: Callable[[Sequence[Line]], Messages]
    read: Callable[[Sequence[Line], str], T]
    schema: Mapping[str, Any]
    tokens: Callable[[Sequence[Line]], int]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """The outcome for a piece of the lines: a value, or why there is none. `model`: who answered."""

    lines: Sequence[Line]
    value: T | None
    why: str | None
    model: str | None = None


def ask(
    context: StageContext, client: LlmClient, groups: Sequence[Sequence[Line]], question: Question[T]
) -> Iterator[Part[T]]:
    """Ask about every group, and tell the progress.

    Raises:
        NotNow, ClaimLost, AttemptFailed: see `calls`. What would end the last attempt becomes a part without a value.
    """
    for place, group in enumerate(groups):
        context.check_claim()
        yield from _about(context, client, group, question)
        context.progress((place + 1) / len(groups))


def _about(context: StageContext, client: LlmClient, lines: Sequence[Line], question: Question[T]) -> Iterator[Part[T]]:
    messages = question.messages(lines)
    try:
        with calls(context, "the language model"):
            reply = client.chat(
                messages, max_tokens=question.tokens(lines), schema=question.schema, lost=context.claim.lost
            )
        if swallowed(messages, reply):
            raise LlmTooLongError("the language model took in only a part of what it was sent")  # noqa: TRY301
    except LlmTooLongError as error:
        yield from _halves(context, client, lines, question, str(error))
    except LlmUnusableError as error:
        yield Part(lines, None, str(error))
    except (LlmError, AttemptFailed) as error:
        if not context.claim.last_attempt:
            raise AttemptFailed(str(error)) from None
        yield Part(lines, None, str(error))
    else:
        yield from _read(context, client, lines, question, reply)


def _read(
    context: StageContext, client: LlmClient, lines: Sequence[Line], question: Question[T], reply: Reply
) -> Iterator[Part[T]]:
    try:
        yield Part(lines, question.read(lines, reply.text), None, reply.model)
    except ValueError as error:
        if reply.cut and (reply.completion_tokens or 0) >= question.tokens(lines):
            # It had more room than a faithful answer takes: the model goes round in circles, and would in every half.
            yield Part(lines, None, "the language model ran on and on", reply.model)
        elif reply.cut:
            yield from _halves(context, client, lines, question, f"the answer was cut off ({error})")
        else:
            yield Part(lines, None, str(error), reply.model)


def _halves(
    context: StageContext, client: LlmClient, lines: Sequence[Line], question: Question[T], why: str
) -> Iterator[Part[T]]:
    if len(lines) < 2:
        yield Part(lines, None, why)
        return
    middle = len(lines) // 2
    context.check_claim()
    yield from _about(context, client, lines[:middle], question)
    yield from _about(context, client, lines[middle:], question)


def swallowed(messages: Sequence[Mapping[str, str]], reply: Reply) -> bool:
    """Whether a server that drops what does not fit dropped a part: a word is never less than half a token."""
    if reply.prompt_tokens is None or reply.prompt_tokens <= 0:
        return False
    return reply.prompt_tokens < sum(len(message["content"].split()) for message in messages) / 2
