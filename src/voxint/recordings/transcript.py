"""PURE: the transcript as values. Words get times where a model left them out, speakers from turns, and become lines."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from voxint.services.heard import HeardWord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxint.services.heard import Heard, HeardSegment, Turn

NEAR_SECONDS = 1.0
"""A word outside all turns belongs to the nearest one within this; beyond it the speaker is unknown."""
FLICKER_SECONDS = 0.3
"""A stretch this short between two of one other speaker is a slip of the times, not a turn."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its place in time, in seconds. `text` is as written in the line, with its punctuation."""

    text: str
    start: float
    end: float
    probability: float | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """What one speaker says in one go. `id` counts from 1; times are seconds and never move again."""

    id: int
    start: float
    end: float
    speaker: str | None
    text: str
    words: tuple[Word, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The line as it is stored."""
        document = asdict(self)
        document["words"] = [asdict(word) for word in self.words]
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Line:
        """A stored line."""
        words = tuple(Word(**word) for word in document["words"])
        return cls(**{**document, "words": words})


def segments_of(heard: Heard, duration: float) -> list[list[Word]]:
    """The recogniser's segments as lists of words, in order, every word with times inside 0 and `duration`."""
    bounds = _bounds(heard.segments, duration)
    spread = _spread_words(heard, bounds)
    found = []
    for segment, (start, end), words in zip(heard.segments, bounds, spread, strict=True):
        timed = _with_times(_as_written(segment.text, words), start, end)
        if timed:
            found.append(timed)
    return found


def lines_of(segments: Sequence[Sequence[Word]], turns: Sequence[Turn]) -> list[Line]:
    """Lines by speaker: each word takes the speaker of its moment, and a line ends where the speaker or segment does."""
    finder = _Finder(turns)
    lines: list[Line] = []
    for segment in segments:
        spoken = _without_flicker([replace(word, speaker=finder.at(word.start, word.end)) for word in segment])
        for speaker, group in groupby(spoken, key=lambda word: word.speaker):
            words = tuple(group)
            text = " ".join("".join(word.text for word in words).split())
            if text:
                end = max(word.end for word in words)
                lines.append(Line(len(lines) + 1, words[0].start, end, speaker, text, words))
    return lines


def repeated(lines: Sequence[Line], times: int = 5) -> tuple[str, int] | None:
    """The longest run of lines with the very same text, where it has at least `times` of them: a loop of the model."""
    longest: tuple[str, int] | None = None
    for text, group in groupby(lines, key=lambda line: line.text.casefold()):
        count = sum(1 for _ in group)
        if count >= times and (longest is None or count > longest[1]):
            longest = (text, count)
    return longest


def _bounds(segments: Sequence[HeardSegment], duration: float) -> list[tuple[float, float]]:
    """Each segment's start and end, inside the recording and in order; missing ones come from the neighbours."""
    found: list[tuple[float, float]] = []
    before = 0.0
    for place, segment in enumerate(segments):
        start = before if segment.start is None else min(max(segment.start, 0.0), duration)
        following = next((each.start for each in segments[place + 1 :] if each.start is not None), None)
        end = segment.end if segment.end is not None else following if following is not None else duration
        end = min(max(end, start), duration)
        found.append((start, end))
        before = end
    return found


def _spread_words(heard: Heard, bounds: Sequence[tuple[float, float]]) -> list[tuple[HeardWord, ...]]:
    """The words of each segment: its own, or those of the common list whose time falls into it, in their order."""
    if not heard.words or any(segment.words for segment in heard.segments):
        return [segment.words for segment in heard.segments]
    spread: list[list[HeardWord]] = [[] for _ in bounds]
    sizes = [len(segment.text.split()) for segment in heard.segments]
    place = 0
    for word in heard.words if bounds else ():
        if word.start is not None:
            while place + 1 < len(bounds) and word.start >= bounds[place + 1][0] - 0.01:
                place += 1
        elif place + 1 < len(bounds) and len(spread[place]) >= sizes[place]:
            place += 1  # a word without a time goes where the text still has room for it
        spread[place].append(word)
    return [tuple(words) for words in spread]


def _as_written(text: str, words: Sequence[HeardWord]) -> list[HeardWord]:
    """The words with the text that stands between them (spaces, punctuation), as the segment has it.

    Where the segment's text and its words do not agree, the words stand with a space before each. A segment without
    words is one word: it has one place in time.
    """
    plain = text.strip()
    if not words:
        return [HeardWord(f" {plain}")] if plain else []
    starts: list[int] = []
    cursor = 0
    folds = len(plain.lower()) == len(plain)  # a letter that becomes two would shift every place behind it
    folded = plain.lower() if folds else plain
    for word in words:
        wanted = word.text.strip().lower() if folds else word.text.strip()
        at = folded.find(wanted, cursor) if wanted else cursor
        if at < 0 or at > cursor + _LONGEST_SKIP:
            return [replace(each, text=f" {each.text.strip()}") for each in words if each.text.strip()]
        starts.append(at)
        cursor = at + len(wanted)
    starts[0] = 0
    ends = [*starts[1:], len(plain)]
    pieces = [plain[start:end] for start, end in zip(starts, ends, strict=True)]
    spaced = [" ", *(" " if piece.endswith(" ") else "" for piece in pieces[:-1])]
    return [
        replace(word, text=space + piece.strip())
        for word, space, piece in zip(words, spaced, pieces, strict=True)
        if piece.strip()
    ]


_LONGEST_SKIP = 12
"""Characters between two words that the words' list does not have: punctuation, no more."""


def _with_times(words: Sequence[HeardWord], start: float, end: float) -> list[Word]:
    """Every word with times: its own, else shared out between its neighbours'; never backwards."""
    timed: list[Word] = []
    before = start
    for place, word in enumerate(words):
        begin, finish = word.start, word.end
        if begin is None:
            begin = before
            if finish is None:
                until, share = _next_start(words, place, end)
                finish = before + max(until - before, 0.0) / share
        begin = min(max(begin, timed[-1].start if timed else start), max(end, start))
        finish = min(max(begin if finish is None else finish, begin), max(end, begin))
        timed.append(Word(word.text, round(begin, 3), round(finish, 3), word.probability))
        before = max(before, finish)
    return timed


def _next_start(words: Sequence[HeardWord], place: int, end: float) -> tuple[float, int]:
    """When the next word begins that has a time (or the segment ends), and how many words share the time until then."""
    for later in range(place + 1, len(words)):
        at = words[later].start
        if at is not None:
            return at, later - place
    return end, len(words) - place


class _Finder:
    """Finds the speaker of a moment among the turns."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = sorted(turns, key=lambda turn: (turn.start, turn.end))
        self._starts = [turn.start for turn in self._turns]
        self._longest = max((turn.end - turn.start for turn in self._turns), default=0.0)

    def at(self, start: float, end: float) -> str | None:
        """The speaker with the most of the stretch; where nobody has any, the nearest within NEAR_SECONDS."""
        shares: dict[str, float] = {}
        nearest: tuple[float, str] | None = None
        for turn in self._near(start, end):
            shared = min(end, turn.end) - max(start, turn.start)
            if shared > 0 or (start == end and turn.start <= start <= turn.end):
                # A voice that is alone in its turn weighs more than one that talks over another.
                shares[turn.speaker] = shares.get(turn.speaker, 0.0) + max(shared, 1e-6) * (0.5 if turn.overlap else 1)
            distance = max(turn.start - end, start - turn.end, 0.0)
            if distance <= NEAR_SECONDS and (nearest is None or distance < nearest[0]):
                nearest = (distance, turn.speaker)
        if shares:
            return max(shares, key=lambda speaker: shares[speaker])
        return nearest[1] if nearest else None

    def _near(self, start: float, end: float) -> Iterable[Turn]:
        first = bisect_left(self._starts, start - self._longest - NEAR_SECONDS)
        last = bisect_left(self._starts, end + NEAR_SECONDS)
        return self._turns[first:last]


def _without_flicker(words: list[Word]) -> list[Word]:
    groups = [(speaker, list(group)) for speaker, group in groupby(words, key=lambda word: word.speaker)]
    for place in range(1, len(groups) - 1):
        before, (_, inside), after = groups[place - 1], groups[place], groups[place + 1]
        short = inside[-1].end - inside[0].start < FLICKER_SECONDS
        if before[0] == after[0] and before[0] is not None and short:
            groups[place] = (before[0], [replace(word, speaker=before[0]) for word in inside])
    return [word for _, group in groups for word in group]


def in_order(lines: Sequence[Line]) -> bool:
    """Whether ids count up from 1 and no line begins before the one in front of it."""
    return all(line.id == place for place, line in enumerate(lines, 1)) and all(
        first.start <= second.start for first, second in pairwise(lines)
    )
