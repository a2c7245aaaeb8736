"""PURE: gets the JSON out of what a language model wrote around it: reasoning blocks, fences, a sentence before it."""

from __future__ import annotations

import json
import re
from typing import Any

from voxint.storable import storable

_THINKING = re.compile(r"\A\s*<(think|thinking|reasoning)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_UNCLOSED = re.compile(r"\A\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)```", re.DOTALL)
_STARTS = 200
"""Places in one answer at which a JSON value is looked for."""


def without_thinking(text: str) -> str:
    """The answer without the reasoning blocks that it begins with. Tags further in belong to what was said.

    Raises:
        ValueError: a block that begins the answer does not end: the answer was cut off before it came.
    """
    rest = text.lstrip("\ufeff")
    while match := _THINKING.match(rest):
        rest = rest[match.end() :]
    if _UNCLOSED.match(rest):
        raise ValueError("the answer was cut off while the model was still thinking")
    return rest.strip()


def json_in(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON object or array of an answer.

    Raises:
        ValueError: there is none, or it is cut off.
    """
    answer = without_thinking(text)
    value = _whole(answer)
    if value is None:
        value = _anywhere(_behind_thinking(answer))
    if value is None:
        raise ValueError(
            "the answer has no JSON in it" if "{" not in answer else "the answer's JSON is cut off or broken"
        )
    return value


def _behind_thinking(answer: str) -> str:
    """What stands behind a reasoning block of which only the end is there: some models' templates open it for them."""
    ends = [match.end() for match in _CLOSED.finditer(answer)]
    rest = answer[ends[-1] :].strip() if ends else ""
    return rest if "{" in rest or "[" in rest else answer


def _anywhere(answer: str) -> Any:  # noqa: ANN401
    for candidate in [answer, *(match.group(1).strip() for match in _FENCE.finditer(answer))]:
        value = _whole(candidate)
        if value is not None:
            return value
    return _first_in(answer)


def _whole(text: str) -> Any:  # noqa: ANN401
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return storable(value) if isinstance(value, dict | list) else None


def _first_in(text: str) -> Any:  # noqa: ANN401
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    for match in list(re.finditer(r"[\[{]", text))[:_STARTS]:
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list) and value:
            return storable(value)
    return None
