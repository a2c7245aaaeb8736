"""PURE: voices. Which stretches a vector is made from, a speaker's one vector, and how near two of them are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.services.heard import Embedding, Turn

WINDOWS = 12
"""Stretches that a speaker's vector is made from: the longest ones."""
LONGEST_WINDOW_SECONDS = 20.0
SHORTEST_WINDOW_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Voice:
    """One speaker of one recording. `seconds` of speech; `vector` of length 1, or the reason why there is none."""

    label: str
    seconds: float
    vector: tuple[float, ...] | None
    reason: str | None = None

    def to_document(self) -> dict[str, Any]:
        """The voice as it is stored."""
        return {
            "label": self.label,
            "seconds": round(self.seconds, 3),
            "vector": None if self.vector is None else [round(value, 6) for value in self.vector],
            "reason": self.reason,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Voice:
        """A stored voice."""
        vector = document["vector"]
        return cls(
            str(document["label"]),
            float(document["seconds"]),
            None if vector is None else tuple(float(value) for value in vector),
            document["reason"],
        )


def windows_of(turns: Sequence[Turn]) -> dict[str, list[tuple[float, float]]]:
    """For each speaker, in order of appearance, the stretches to make a vector from: long ones that nobody talks over."""
    found: dict[str, list[tuple[float, float]]] = {}
    for label in dict.fromkeys(turn.speaker for turn in sorted(turns, key=lambda turn: turn.start)):
        own = [turn for turn in turns if turn.speaker == label and turn.end - turn.start >= SHORTEST_WINDOW_SECONDS]
        alone = [turn for turn in own if not turn.overlap] or own
        longest = sorted(alone, key=lambda turn: turn.start - turn.end)[:WINDOWS]
        found[label] = [
            (turn.start, min(turn.end, turn.start + LONGEST_WINDOW_SECONDS))
            for turn in sorted(longest, key=lambda turn: turn.start)
        ]
    return found


def voice_of(
    label: str,
    turns: Sequence[Turn],
    windows: Sequence[tuple[float, float]],
    embeddings: Sequence[Embedding],
) -> Voice:
    """A speaker's voice: the mean of its windows' unit vectors, weighted by their length, and of length 1 again."""
    seconds = sum(turn.end - turn.start for turn in turns if turn.speaker == label)
    total: list[float] = []
    for (start, end), embedding in zip(windows, embeddings, strict=True):
        unit = _unit(embedding.vector) if embedding.vector is not None else None
        if unit is not None:
            total = total or [0.0] * len(unit)
            total = [have + value * (end - start) for have, value in zip(total, unit, strict=True)]
    vector = _unit(total) if total else None
    if vector is None:
        reasons = [each.reason for each in embeddings if each.reason]
        return Voice(label, seconds, None, reasons[0] if reasons else "too_short")
    return Voice(label, seconds, vector)


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors' angle: 1 for the same direction. 0 where their lengths differ or one is nothing."""
    if len(one) != len(other):
        return 0.0
    size = math.sqrt(sum(value * value for value in one)) * math.sqrt(sum(value * value for value in other))
    return sum(first * second for first, second in zip(one, other, strict=True)) / size if size else 0.0


def _unit(vector: Sequence[float]) -> tuple[float, ...] | None:
    size = math.sqrt(sum(value * value for value in vector))
    return tuple(value / size for value in vector) if size else None


def numbered(labels: Sequence[str]) -> dict[str, str]:
    """Names for speakers that nobody knows: Speaker 1, Speaker 2, in their order of appearance."""
    return {label: f"Speaker {number}" for number, label in enumerate(dict.fromkeys(labels), 1)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of likeness for one model's vectors.

    From `same` on two voices are one person, below `other` they are not; the likeliest must lead the next by `lead`.
    """

    same: float
    other: float
    lead: float


DEFAULT_LIMITS = Limits(same=0.80, other=0.68, lead=0.05)
"""For GE2E vectors: one voice measured 0.76 to 0.87 window by window, and more as a speaker's mean; others 0.60 to 0.71."""
MODEL_LIMITS = {"titanet": Limits(same=0.70, other=0.50, lead=0.05)}
"""By a word in the model's name. TitaNet: 0.7 is the threshold that its authors verify speakers with."""


def limits_of(model: str) -> Limits:
    """The limits for the vectors of a model."""
    named = model.lower()
    return next((limits for word, limits in MODEL_LIMITS.items() if word in named), DEFAULT_LIMITS)


@dataclass(frozen=True, slots=True)
class Known:
    """A speaker of the roster, with the voices that one model heard of them."""

    id: int
    name: str | None
    vectors: tuple[tuple[float, ...], ...]

    def likeness(self, vector: Sequence[float]) -> float:
        """How like a vector is to the mean of the voices."""
        size = len(self.vectors[0]) if self.vectors else 0
        alike = [each for each in self.vectors if len(each) == size]
        mean = [sum(values) / len(alike) for values in zip(*alike, strict=True)]
        return likeness(mean, vector)


@dataclass(frozen=True, slots=True)
class Match:
    """What the roster says of one voice.

    No speaker and `is_new`: nobody like that is known yet. No speaker and not `is_new`: the voice is too like several,
    or not like enough to one, to say anything.
    """

    speaker: Known | None
    is_new: bool
    likeness: float


def matches(voices: Sequence[Voice], model: str, roster: Sequence[Known]) -> dict[str, Match]:
    """Who the voices of one recording are, by label; the likeliest pairs first, and nobody twice."""
    limits = limits_of(model)
    scores = {
        voice.label: sorted(
            ((known.likeness(voice.vector), known) for known in roster if known.vectors),
            key=lambda pair: pair[0],
            reverse=True,
        )
        for voice in voices
        if voice.vector is not None
    }
    found: dict[str, Match] = {}
    taken: set[int] = set()
    for label, ranked in sorted(scores.items(), key=lambda item: -item[1][0][0] if item[1] else 0.0):
        best = ranked[0][0] if ranked else 0.0
        lead = best - ranked[1][0] if len(ranked) > 1 else 1.0
        if best >= limits.same and lead >= limits.lead and ranked[0][1].id not in taken:
            taken.add(ranked[0][1].id)
            found[label] = Match(ranked[0][1], is_new=False, likeness=best)
        else:
            found[label] = Match(None, is_new=best < limits.other, likeness=best)
    return found
