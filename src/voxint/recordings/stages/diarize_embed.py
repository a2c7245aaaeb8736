"""Stage diarize_embed: who spoke when, a voice vector for each speaker, and lines that have a speaker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint.recordings.speakers import Voice, voice_of, windows_of
from voxint.recordings.stages.services import calls, limit, service
from voxint.recordings.transcript import Word, lines_of, repeated
from voxint.services.pyannote import PyannoteClient
from voxint.services.titanet import TitanetClient

if TYPE_CHECKING:
    from voxint.recordings.stages.context import StageContext
    from voxint.services.heard import Turn


def diarize_embed(context: StageContext) -> dict[str, Any]:
    """Ask the diarizer, then the voice encoder, and put words and turns together."""
    audio = context.file("prepare")
    run = context.run
    with calls(context, "pyannote"):
        found = PyannoteClient(service(context, "pyannote"), limit(context)).diarize(
            audio, fewest=run.speakers_min, most=run.speakers_max, lost=context.claim.lost
        )
    context.progress(0.5)
    voices, model = _voices(context, found.turns)
    segments = [[Word(**word) for word in words] for words in context.result("transcribe")["segments"]]
    lines = lines_of(segments, found.turns)
    loop = repeated(lines)
    if loop is not None:
        context.warn(f"the same line stands {loop[1]} times in a row: the recogniser may have repeated itself")
    return {
        "diarizer": found.model,
        "voice_model": model,
        "turns": [
            {"start": turn.start, "end": turn.end, "speaker": turn.speaker, "overlap": turn.overlap}
            for turn in found.turns
        ],
        "speakers": [voice.to_document() for voice in voices],
        "lines": [line.to_document() for line in lines],
    }


def _voices(context: StageContext, turns: tuple[Turn, ...]) -> tuple[list[Voice], str | None]:
    chosen = windows_of(turns)
    asked = [window for windows in chosen.values() for window in windows]
    if not asked:
        return [voice_of(label, turns, [], []) for label in chosen], None
    with calls(context, "titanet"):
        found = TitanetClient(service(context, "titanet"), limit(context)).embed(
            context.file("prepare"), asked, lost=context.claim.lost
        )
    voices = []
    place = 0
    for label, windows in chosen.items():
        voices.append(voice_of(label, turns, windows, found.vectors[place : place + len(windows)]))
        place += len(windows)
    return voices, found.model
