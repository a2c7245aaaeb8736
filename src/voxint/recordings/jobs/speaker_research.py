"""Job speaker_research: names and roles of speakers for which the transcript itself gives evidence, which is quoted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxint.llm.answers import json_in
from voxint.recordings.asking import Question, ask
from voxint.recordings.jobs.source import (
    DATA_NOTE,
    client_for,
    lines_in,
    listed,
    overlapping,
    pieces_of,
    sentence,
    transcript_of,
)
from voxint.recordings.repair import words_of
from voxint.services.numbers import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.recordings.stages.context import StageContext
    from voxint.recordings.transcript import Line

NAME_CHARACTERS = 100
_POINT = {
    "type": "object",
    "properties": {
        "speaker": {"type": "string"},
        "name": {"type": "string"},
        "role": {"type": "string"},
        "line": {"type": "integer"},
        "quote": {"type": "string"},
    },
    "required": ["speaker", "name", "role", "line", "quote"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"speakers": {"type": "array", "items": _POINT}},
    "required": ["speakers"],
}
_INSTRUCTIONS = (
    "You look for what a transcript itself says about who its speakers are: where they give their name, are spoken to "
    "by name, or say what they do. " + DATA_NOTE + ' Form: {"speakers": [{"speaker": "the label as given", "name": '
    '"the name, or empty", "role": "the role, or empty", "line": id of the line that says so, "quote": "the words of '
    'that line, exactly"}]}. Name nobody without such a line. An empty list is a good answer.'
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One finding: what a line says about a speaker. `name` or `role` may be None, never both."""

    speaker: str
    name: str | None
    role: str | None
    line: int
    quote: str


def speaker_research(context: StageContext) -> dict[str, Any]:
    """Ask piece by piece; keep what the quoted line bears out."""
    lines = lines_in(transcript_of(context))
    if not lines:
        return {"findings": [], "model": None}
    client = client_for(context, "RESEARCH")
    parts = list(
        ask(context, client, overlapping(pieces_of(context, lines)), _question({line.speaker for line in lines}))
    )
    missing = [part.why for part in parts if part.value is None]
    if missing:
        context.warn(f"{len(missing)} of {len(parts)} parts could not be searched for speakers: {missing[0]}")
    starts = {line.id: line.start for line in lines}
    kept = dict.fromkeys(each for part in parts for each in part.value or ())
    return {
        "findings": [
            {
                "speaker": each.speaker,
                "name": each.name,
                "role": each.role,
                "line": each.line,
                "start": starts[each.line],
                "quote": each.quote,
            }
            for each in sorted(kept, key=lambda each: (each.speaker, each.line))
        ],
        "model": next((part.model for part in parts if part.model), None),
    }


def findings_in(lines: Sequence[Line], reply: str, labels: set[str | None]) -> tuple[Evidence, ...]:
    """What an answer finds, as far as its quotes stand in the lines and its names and roles in the quotes.

    Raises:
        ValueError: the answer has no list of speakers.
    """
    document = json_in(reply)
    if not isinstance(document, dict) or not isinstance(document.get("speakers"), list):
        raise ValueError("the answer has no list of speakers")  # noqa: TRY004 - it is the answer that is wrong
    texts = {line.id: line.text for line in lines}
    found = []
    for record in records(document["speakers"]):
        evidence = _borne_out(record, texts, labels)
        if evidence is not None:
            found.append(evidence)
    return tuple(found)


def _borne_out(record: dict[str, Any], texts: dict[int, str], labels: set[str | None]) -> Evidence | None:
    speaker, line, quote = record.get("speaker"), record.get("line"), sentence(record.get("quote"), 500)
    if not isinstance(speaker, str) or speaker not in labels:
        return None
    if not isinstance(line, int) or isinstance(line, bool) or line not in texts or quote is None:
        return None
    quoted = words_of(quote)
    if not quoted or not _stands_in(quoted, words_of(texts[line])):
        return None
    name = _said(sentence(record.get("name"), NAME_CHARACTERS), quoted)
    role = _said(sentence(record.get("role"), NAME_CHARACTERS), quoted)
    return Evidence(speaker, name, role, line, quote) if name or role else None


def _said(value: str | None, quoted: list[str]) -> str | None:
    """The value where every word of it is in the quote: nothing is made up."""
    return value if value and words_of(value) and set(words_of(value)) <= set(quoted) else None


def _stands_in(part: list[str], whole: list[str]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def _question(labels: set[str | None]) -> Question[tuple[Evidence, ...]]:
    return Question(
        messages=lambda lines: [
            {"role": "system", "content": _INSTRUCTIONS},
            {"role": "user", "content": listed(lines, with_speakers=True)},
        ],
        read=lambda lines, reply: findings_in(lines, reply, labels),
        schema=SCHEMA,
        tokens=lambda _lines: 1000,
    )
