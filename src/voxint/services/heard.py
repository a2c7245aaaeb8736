"""PURE: the model services' answers as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word with its times in seconds, where the model gave them."""

    text: str
    start: float | None = None
    end: float | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class HeardSegment:
    """A stretch of speech. `words` only where the server puts them here and not in a list of its own."""

    text: str
    start: float | None = None
    end: float | None = None
    words: tuple[HeardWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """What the recogniser heard."""

    language: str | None
    duration_seconds: float | None
    text: str
    segments: tuple[HeardSegment, ...]
    words: tuple[HeardWord, ...]
    model: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One speaker's stretch, in seconds. `overlap`: somebody else speaks at the same time."""

    start: float
    end: float
    speaker: str
    overlap: bool = False


@dataclass(frozen=True, slots=True)
class Diarization:
    """Who spoke when, the earliest first."""

    duration_seconds: float | None
    turns: tuple[Turn, ...]
    model: str | None


@dataclass(frozen=True, slots=True)
class Embedding:
    """A voice vector, or why there is none: too_short, silent."""

    vector: tuple[float, ...] | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One for each window, in the windows' order."""

    model: str
    vectors: tuple[Embedding, ...]
