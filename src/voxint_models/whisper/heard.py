"""What a recognizer heard, whatever the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from voxint_models.serving.service import Cancel, Engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxint_models.audio import Whole


@dataclass(frozen=True)
class Word:
    """A word, its times in seconds from the recording's beginning, and how sure the model is of it, from 0 to 1."""

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True)
class Segment:
    """A stretch of text with its times in seconds, and what the model says of its own doubts."""

    start: float
    end: float
    text: str
    words: tuple[Word, ...] = ()
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    average_log_probability: float = 0.0
    compression_ratio: float = 0.0
    no_speech_probability: float = 0.0


@dataclass(frozen=True)
class Heard:
    """A whole recording; `duration` in seconds, no segments where nobody speaks."""

    language: str
    duration: float
    segments: tuple[Segment, ...] = ()

    @property
    def text(self) -> str:
        """All of it, one line."""
        return " ".join("".join(segment.text for segment in self.segments).split())


@dataclass(frozen=True)
class Wish:
    """What a caller asks for. `language` None lets the model find out."""

    language: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    words: bool = False
    voice_filter: bool = True
    task: str = field(default="transcribe")


class Recognizer(Engine, Protocol):
    """An engine that turns speech into text."""

    def hear(self, parts: Iterable[Whole], wish: Wish, cancel: Cancel) -> Heard:
        """Transcribe a recording that comes in small parts. Raises BadRequestError where the wish cannot be met, CancelledError when nobody waits any more."""
