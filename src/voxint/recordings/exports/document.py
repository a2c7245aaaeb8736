"""PURE: the frozen transcript as a value, and as the document that is stored and given out as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxint.recordings.transcript import Line

FORMAT = "voxint transcript 1"


@dataclass(frozen=True, slots=True)
class SpokenLine:
    """One line: `text` is what is shown; `heard` is what the recogniser wrote, where it differs."""

    id: int
    start: float
    end: float
    speaker: str
    label: str | None
    text: str
    heard: str | None
    kept: str | None
    words: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """A frozen transcript. Times are seconds; `speakers` maps labels to names; `models` names what made it."""

    title: str
    run_id: int
    language: str | None
    duration_seconds: float
    engine: str
    models: Mapping[str, str | None]
    notices: tuple[str, ...]
    speakers: Mapping[str, str]
    lines: tuple[SpokenLine, ...]

    @staticmethod
    def line(line: Line, text: str, kept: str | None, speaker: str) -> SpokenLine:
        """A line with its text and its speaker's name."""
        words = tuple(
            {"text": word.text.strip(), "start": word.start, "end": word.end, "probability": word.probability}
            for word in line.words
        )
        heard = line.text if line.text != text else None
        return SpokenLine(line.id, line.start, line.end, speaker, line.speaker, text, heard, kept, words)

    def with_names(self, names: Mapping[str, str]) -> Transcript:
        """The same with other names for some speakers, by label."""
        lines = tuple(replace(line, speaker=names.get(line.label or "", line.speaker)) for line in self.lines)
        return replace(self, speakers={**self.speakers, **names}, lines=lines)

    def in_language(self, language: str, texts: Mapping[int, str], notice: str) -> Transcript:
        """The same in another language, by the lines' ids; what has no text there stays as it is. Times do not move."""
        lines = tuple(replace(line, text=texts.get(line.id, line.text), words=()) for line in self.lines)
        return replace(self, language=language, notices=(*self.notices, notice), lines=lines)

    @property
    def header(self) -> list[str]:
        """What made it, in lines for people."""
        made_by = "; ".join(f"{part}: {model}" for part, model in self.models.items() if model)
        return [f"Made by {self.engine}" + (f" ({made_by})" if made_by else ""), *self.notices]

    def to_document(self) -> dict[str, Any]:
        """The transcript as JSON's own values."""
        return {
            "format": FORMAT,
            "title": self.title,
            "run": self.run_id,
            "language": self.language,
            "duration_seconds": self.duration_seconds,
            "engine": self.engine,
            "models": dict(self.models),
            "notices": list(self.notices),
            "speakers": dict(self.speakers),
            "lines": [
                {
                    "id": line.id,
                    "start": line.start,
                    "end": line.end,
                    "speaker": line.speaker,
                    "label": line.label,
                    "text": line.text,
                    "heard": line.heard,
                    "kept": line.kept,
                    "words": [dict(word) for word in line.words],
                }
                for line in self.lines
            ],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Transcript:
        """A stored transcript."""
        return cls(
            title=document["title"],
            run_id=document["run"],
            language=document["language"],
            duration_seconds=document["duration_seconds"],
            engine=document["engine"],
            models=document["models"],
            notices=tuple(document["notices"]),
            speakers=document["speakers"],
            lines=tuple(SpokenLine(**{**line, "words": tuple(line["words"])}) for line in document["lines"]),
        )
