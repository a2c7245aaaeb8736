"""The client of the speech recogniser: the OpenAI form of a transcription, as many servers speak it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint.services.heard import Heard, HeardSegment, HeardWord
from voxint.services.model_call import ModelCall, ServiceError
from voxint.services.numbers import number, records

if TYPE_CHECKING:
    import threading
    from datetime import timedelta
    from pathlib import Path

    from voxint.settings import ServiceSettings


class WhisperClient:
    """Asks one speech recogniser.

    Args:
        service: where it answers.
        total: the limit on one whole call.
        model: the model's name in requests.
    """

    def __init__(self, service: ServiceSettings, total: timedelta, model: str = "default") -> None:
        self._call = ModelCall(service.name, service.url.rstrip("/") + "/v1/audio/transcriptions", total)
        self._model = model

    def transcribe(self, audio: Path, *, language: str | None = None, lost: threading.Event | None = None) -> Heard:
        """Turn speech into text with times.

        Raises:
            ExchangeError, ServiceError: see ModelCall.post.
        """
        form: dict[str, Any] = {
            "model": self._model,
            "response_format": "verbose_json",
            "timestamp_granularities[]": ["word", "segment"],
        }
        if language:
            form["language"] = language
        with audio.open("rb") as file:
            document = self._call.post({"file": ("audio.wav", file, "audio/wav")}, form, lost)
        return heard_in(document)


def heard_in(document: dict[str, Any]) -> Heard:
    """A transcription document as a value. A server that gives no segments gives one with the whole text.

    Raises:
        ServiceError: it holds neither text nor segments.
    """
    text = document.get("text")
    if not isinstance(text, str) and not isinstance(document.get("segments"), list):
        raise ServiceError("whisper answered 200 without text and without segments")
    duration = number(document.get("duration"))
    segments = tuple(_segment(each) for each in records(document.get("segments")))
    words = tuple(_word(each) for each in records(document.get("words")))
    if not segments and isinstance(text, str) and text.strip():
        segments = (HeardSegment(text, 0.0, duration),)
    return Heard(
        language=_text(document.get("language")),
        duration_seconds=duration,
        text=text if isinstance(text, str) else "",
        segments=segments,
        words=words,
        model=_text(document.get("model")),
    )


def _segment(record: dict[str, Any]) -> HeardSegment:
    return HeardSegment(
        text=_text(record.get("text")) or "",
        start=number(record.get("start")),
        end=number(record.get("end")),
        words=tuple(_word(each) for each in records(record.get("words"))),
    )


def _word(record: dict[str, Any]) -> HeardWord:
    return HeardWord(
        text=_text(record.get("word")) or _text(record.get("text")) or "",
        start=number(record.get("start")),
        end=number(record.get("end")),
        probability=number(record.get("probability")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
