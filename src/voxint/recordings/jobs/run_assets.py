"""Job run_assets: a summary, chapters and action points, each of the latter two tied to a line of the transcript."""

from __future__ import annotations

import json
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
from voxint.recordings.transcript import Line
from voxint.services.numbers import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.llm.client import LlmClient
    from voxint.recordings.stages.context import StageContext

SUMMARY_CHARACTERS = 2000
TITLE_CHARACTERS = 120
ACTION_CHARACTERS = 300
_POINT = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"line": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["line", "text"],
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "chapters": _POINT, "actions": _POINT},
    "required": ["summary", "chapters", "actions"],
}
SUMMARY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
}
_ASSETS = (
    "You summarise a part of a transcript. " + DATA_NOTE + ' Form: {"summary": "two to four sentences", "chapters": '
    '[{"line": id of the line where a new topic begins, "text": "short title"}], "actions": [{"line": id of the line '
    'where somebody takes on a task, "text": "who does what"}]}. Write only what the lines say, in their language. '
    "Leave a list empty where there is nothing."
)
_TOGETHER = (
    "You join summaries of the parts of one recording, in their order, into one summary. "
    + DATA_NOTE
    + ' Form: {"summary": "three to six sentences"}. Write only what the parts say, in their language.'
)


@dataclass(frozen=True, slots=True)
class Assets:
    """What one piece of the transcript gave. Points are (line id, text)."""

    summary: str
    chapters: tuple[tuple[int, str], ...]
    actions: tuple[tuple[int, str], ...]


def run_assets(context: StageContext) -> dict[str, Any]:
    """Ask piece by piece, then for one summary of the pieces' summaries."""
    lines = lines_in(transcript_of(context))
    if not lines:
        return {"summary": "", "chapters": [], "actions": [], "model": None}
    client = client_for(context, "ASSETS")
    parts = list(ask(context, client, overlapping(pieces_of(context, lines)), ASSETS))
    missing = [part.why for part in parts if part.value is None]
    if missing:
        context.warn(f"{len(missing)} of {len(parts)} parts are not in the summary: {missing[0]}")
    found = [part.value for part in parts if part.value is not None]
    starts = {line.id: line.start for line in lines}
    return {
        "summary": _joined(context, client, [each.summary for each in found]),
        "chapters": _points(_first_each(point for each in found for point in each.chapters), starts),
        "actions": _points((point for each in found for point in each.actions), starts),
        "model": next((part.model for part in parts if part.model), None),
    }


def assets_in(lines: Sequence[Line], reply: str) -> Assets:
    """An answer as assets. Points that name no line of the piece are left out: nothing shows that they were said.

    Raises:
        ValueError: there is no summary in it.
    """
    document = json_in(reply)
    summary = sentence(document.get("summary"), SUMMARY_CHARACTERS) if isinstance(document, dict) else None
    if summary is None or not isinstance(document, dict):
        raise ValueError("the answer has no summary")
    known = {line.id for line in lines}
    return Assets(
        summary,
        _tied(document.get("chapters"), known, TITLE_CHARACTERS),
        _tied(document.get("actions"), known, ACTION_CHARACTERS),
    )


ASSETS = Question(
    messages=lambda lines: [{"role": "system", "content": _ASSETS}, {"role": "user", "content": listed(lines)}],
    read=assets_in,
    schema=SCHEMA,
    tokens=lambda _lines: 1200,
)


def _tied(value: object, known: set[int], most: int) -> tuple[tuple[int, str], ...]:
    found = []
    for record in records(value):
        line, text = record.get("line"), sentence(record.get("text", record.get("title")), most)
        if isinstance(line, int) and not isinstance(line, bool) and line in known and text:
            found.append((line, text))
    return tuple(found)


def _points(points: Iterable[tuple[int, str]], starts: dict[int, float]) -> list[dict[str, Any]]:
    """In the order of the recording; what two pieces say of a line that they share stands once."""
    return [{"line": line, "start": starts[line], "text": text} for line, text in sorted(dict.fromkeys(points))]


def _first_each(points: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str]]:
    """The first point of each line: a line begins one chapter."""
    first: dict[int, str] = {}
    for line, text in points:
        first.setdefault(line, text)
    return first.items()


def _joined(context: StageContext, client: LlmClient, summaries: list[str]) -> str:
    """One summary of several; where the model cannot join them they stand one after the other."""
    while len(summaries) > 1:
        pieces = [Line(number, 0.0, 0.0, None, text) for number, text in enumerate(summaries, 1)]
        groups = [pieces[start : start + _JOIN] for start in range(0, len(pieces), _JOIN)]
        found = list(ask(context, client, groups, TOGETHER))
        if len(found) >= len(summaries) or any(part.value is None for part in found):
            return "\n\n".join(summaries)
        summaries = [part.value for part in found if part.value is not None]
    return summaries[0] if summaries else ""


def _summary_in(_lines: Sequence[Line], reply: str) -> str:
    document = json_in(reply)
    summary = sentence(document.get("summary"), SUMMARY_CHARACTERS) if isinstance(document, dict) else None
    if summary is None:
        raise ValueError("the answer has no summary")
    return summary


_JOIN = 8
TOGETHER = Question(
    messages=lambda lines: [
        {"role": "system", "content": _TOGETHER},
        {"role": "user", "content": json.dumps({"parts": [line.text for line in lines]}, ensure_ascii=False)},
    ],
    read=_summary_in,
    schema=SUMMARY_SCHEMA,
    tokens=lambda _lines: 800,
)
