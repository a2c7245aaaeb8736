"""The stages of a run, and the jobs beside it: one function each, from a context to the document that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint.recordings.jobs.run_assets import run_assets
from voxint.recordings.jobs.speaker_research import speaker_research
from voxint.recordings.jobs.translation import translation
from voxint.recordings.stages.acquire import acquire
from voxint.recordings.stages.diarize_embed import diarize_embed
from voxint.recordings.stages.enhance_match import enhance_match
from voxint.recordings.stages.finalize import finalize
from voxint.recordings.stages.prepare import prepare
from voxint.recordings.stages.transcribe import transcribe
from voxint.storable import storable

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.recordings.stages.context import StageContext

    Stage = Callable[[StageContext], dict[str, Any]]


def _stored(stage: Stage) -> Stage:
    """The stage with a result that PostgreSQL can hold, whatever the models wrote."""

    def run(context: StageContext) -> dict[str, Any]:
        document: dict[str, Any] = storable(stage(context))
        return document

    return run


STAGES: dict[str, Stage] = {
    "acquire": _stored(acquire),
    "prepare": _stored(prepare),
    "transcribe": _stored(transcribe),
    "diarize_embed": _stored(diarize_embed),
    "enhance_match": _stored(enhance_match),
    "finalize": _stored(finalize),
    "run_assets": _stored(run_assets),
    "translation": _stored(translation),
    "speaker_research": _stored(speaker_research),
}
"""The work of each kind, by its name."""
