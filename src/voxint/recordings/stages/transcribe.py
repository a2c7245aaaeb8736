"""Stage transcribe: the recogniser's words with their times."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from voxint.recordings.stages.services import calls, limit, service
from voxint.recordings.transcript import segments_of
from voxint.services.whisper import WhisperClient

if TYPE_CHECKING:
    from voxint.recordings.stages.context import StageContext


def transcribe(context: StageContext) -> dict[str, Any]:
    """Ask the recogniser."""
    audio = context.file("prepare")
    duration = float(context.result("prepare")["duration_seconds"])
    client = WhisperClient(service(context, "whisper"), limit(context), context.settings.whisper_model)
    with calls(context, "whisper"):
        heard = client.transcribe(audio, language=context.run.language, lost=context.claim.lost)
    segments = segments_of(heard, duration)
    return {
        "language": heard.language,
        "asked_language": context.run.language,
        "model": heard.model or context.settings.whisper_model,
        "duration_seconds": duration,
        "segments": [[asdict(word) for word in words] for words in segments],
    }
