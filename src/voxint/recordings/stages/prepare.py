"""Stage prepare: the recording's sound as 16 kHz mono WAV, in step with the recording's own clock."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxint.recordings.errors import AttemptFailed, ClaimLost, StageFailed
from voxint.recordings.media.probe import DecoderStopped, MediaError, decode
from voxint.recordings.stages.files import new_file

if TYPE_CHECKING:
    from voxint.recordings.media.probe import MediaFacts
    from voxint.recordings.stages.context import StageContext

ALLOWED_SECONDS = 0.5
"""A difference of length between the sound and what the container says, up to which nothing is said."""


def prepare(context: StageContext) -> dict[str, Any]:
    """Decode the sound in a child process.

    Raises:
        StageFailed: it cannot be decoded.
    """
    source = context.file("acquire")
    try:
        with new_file(context, "audio", ".wav") as (temporary, final):
            facts, done = decode(
                source, temporary, lost=context.claim.lost, tell=lambda known, at: _step(context, known, at)
            )
    except MediaError as error:
        raise StageFailed(f"{context.run.title}: {error}") from None
    except DecoderStopped as error:
        context.check_claim()
        raise AttemptFailed(str(error)) from None
    _warn(context, facts, done)
    context.notes.record(duration_seconds=done["seconds"])
    if context.run.source_kind == "upload":
        with suppress(OSError):
            Path(context.run.source).unlink(missing_ok=True)
    return {
        "file": final.name,
        "duration_seconds": done["seconds"],
        "source_seconds": done["seconds_expected"],
        "start_offset_seconds": done["start_offset_seconds"],
        "filled_seconds": done["filled_seconds"],
        "damaged_packets": done["damaged"],
        "track": facts.track,
        "track_note": facts.track_note,
        "container": facts.container,
        "codec": facts.codec,
        "media_title": facts.title,
    }


def _step(context: StageContext, facts: MediaFacts, at: float) -> None:
    if context.claim.lost.is_set():
        raise ClaimLost
    if facts.duration_seconds:
        context.progress(min(at / facts.duration_seconds, 1.0))


def _warn(context: StageContext, facts: MediaFacts, done: dict[str, Any]) -> None:
    for warning in facts.warnings:
        context.warn(warning)
    if done["damaged"]:
        context.warn(f"{done['damaged']} damaged pieces of its sound were passed over")
    if done["filled_seconds"] > ALLOWED_SECONDS and done["filled_seconds"] > done["start_offset_seconds"] + 0.1:
        context.warn(
            f"{done['filled_seconds'] - done['start_offset_seconds']:.1f} s of sound are missing; silence stands in their place"
        )
    expected = done["seconds_expected"]
    if expected is not None and abs(done["seconds"] - expected) > max(ALLOWED_SECONDS, expected * 0.001):
        context.warn(f"the sound is {done['seconds']:.1f} s long, but the file says {expected:.1f} s")
