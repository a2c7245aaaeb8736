"""PURE: a transcript for the page: its lines, with the moment of each word that is shown, so that it can light up.

What is shown may have been spelled anew, so that it need not have the words that were heard one by one: those that
agree keep their moments, and the others get one between their neighbours'.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxint.recordings.exports.document import SpokenLine, Transcript

LINES = 1000
"""Lines on one page."""
_COLOURS = 6


@dataclass(frozen=True, slots=True)
class ShownWord:
    """One word as it stands on the page, and when it begins, in seconds."""

    text: str
    start: float


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One line on the page."""

    id: int
    start: float
    end: float
    at: str
    speaker: str
    colour: int
    """Which of a few colours the speaker has, from 1; 0 where nobody is known."""
    is_turn: bool
    """Whether somebody else spoke before it: then the speaker's name stands over it."""
    words: tuple[ShownWord, ...]
    note: str
    """Why it stands as it was heard, where that is worth a word."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of a transcript on one page."""

    lines: tuple[ShownLine, ...]
    language: str | None
    first: int
    """Places of the first line shown, of the first of the page before, and of the one after; None where there is none."""
    before: int | None
    after: int | None
    total: int

    def part_of(self, line: int) -> int:
        """Where the page begins that a line is on, by the line's number."""
        return max(line - 1, 0) // LINES * LINES


def shown(transcript: Transcript, first: int = 0) -> Shown:
    """The page of the transcript that begins at a line's place, from 0."""
    total = len(transcript.lines)
    first = min(max(first, 0), max(total - 1, 0)) // LINES * LINES
    labels = list(transcript.speakers)
    lines = []
    previous: tuple[str | None, str] | None = None
    for line in transcript.lines[first : first + LINES]:
        who = (line.label, line.speaker)
        colour = labels.index(line.label) % _COLOURS + 1 if line.label in labels else 0
        lines.append(
            ShownLine(
                id=line.id,
                start=line.start,
                end=line.end,
                at=clock(line.start),
                speaker=line.speaker,
                colour=colour,
                is_turn=who != previous,
                words=tuple(words_of(line)),
                note=f"As heard: {line.kept}." if line.kept else "",
            )
        )
        previous = who
    return Shown(
        tuple(lines),
        transcript.language,
        first,
        first - LINES if first else None,
        first + LINES if first + LINES < total else None,
        total,
    )


def clock(seconds: float) -> str:
    """A place in the recording: 0:05, 12:40, 1:02:03."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def words_of(line: SpokenLine) -> list[ShownWord]:
    """The words that are shown, each with its moment; one piece for the line where no word has one."""
    shown_words = line.text.split()
    heard = [word for word in line.words if str(word.get("text", "")).strip()]
    if not shown_words:
        return []
    if not heard:
        return [ShownWord(" ".join(shown_words), line.start)]
    starts = _starts(shown_words, heard)
    return [ShownWord(word, round(start, 2)) for word, start in zip(shown_words, _filled(starts, line), strict=True)]


def _starts(words: Sequence[str], heard: Sequence[Mapping[str, object]]) -> list[float | None]:
    moments = [float(str(word["start"])) for word in heard]
    if len(words) == len(heard):
        return list(moments)
    ours, theirs = [_bare(word) for word in words], [_bare(str(word["text"])) for word in heard]
    found: list[float | None] = [None] * len(words)
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            found[block.a + step] = moments[block.b + step]
    return found


def _filled(starts: Sequence[float | None], line: SpokenLine) -> list[float]:
    """The moments with those that are missing shared out between their neighbours'."""
    found: list[float] = []
    for place, start in enumerate(starts):
        before = found[-1] if found else line.start
        if start is not None:
            found.append(max(start, before))
            continue
        later = next(
            ((other, there) for other, there in enumerate(starts[place + 1 :], place + 1) if there is not None),
            (len(starts), line.end),
        )
        missing = later[0] - place + (1 if found else 0)
        step = (later[1] - before) / missing if missing > 0 else 0.0
        found.append(before + max(step, 0.0) * (1 if found else 0))
    return found


def _bare(word: str) -> str:
    return "".join(each for each in word.casefold() if each.isalnum()) or word


def heard_for(seconds: float) -> str:
    """How long somebody speaks, to the second."""
    return clock(timedelta(seconds=seconds).total_seconds())
