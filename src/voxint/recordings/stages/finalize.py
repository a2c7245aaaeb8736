"""Stage finalize: the transcript is frozen as a version, and written in every form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxint import __version__
from voxint.recordings.exports.document import Transcript
from voxint.recordings.exports.forms import FORMS
from voxint.recordings.roster import hold_roster, names_in
from voxint.recordings.stages.files import new_file, remove_strays
from voxint.recordings.transcript import Line
from voxint.recordings.versions import freeze

if TYPE_CHECKING:
    from voxint.recordings.stages.context import StageContext


def finalize(context: StageContext) -> dict[str, Any]:
    """Freeze the transcript and write its exports."""
    transcript = frozen(context)
    files = {}
    for name, form in FORMS.items():
        with new_file(context, "transcript", form.ending) as (temporary, final):
            temporary.write_text(form.write(transcript), encoding="utf-8", newline="")
            files[name] = final.name
    names = {str(context.result(stage)["file"]) for stage in ("acquire", "prepare")}
    with context.owning() as connection:
        remove_strays(context, names | set(files.values()))
        version = 1
        if connection is not None:
            # Who names a speaker now comes before this, and is seen here, or behind it, and freezes the transcript anew.
            hold_roster(connection)
            transcript = transcript.with_names(names_in(connection, context.run.id))
            version = freeze(connection, transcript, "made from the recording")
    return {"version": version, "transcript": transcript.to_document(), "files": files}


def frozen(context: StageContext) -> Transcript:
    """The transcript as the earlier stages made it."""
    heard, spoken = context.result("transcribe"), context.result("diarize_embed")
    enhanced = context.result("enhance_match")
    names = {label: str(each["name"]) for label, each in enhanced["speakers"].items()} | _named_since(context)
    lines = []
    for document in spoken["lines"]:
        line = Line.from_document(document)
        repaired = enhanced["lines"].get(str(line.id))
        lines.append((line, str(repaired["text"]) if repaired else line.text, repaired["kept"] if repaired else None))
    return Transcript(
        title=context.run.title,
        run_id=context.run.id,
        language=heard["language"] or context.run.language,
        duration_seconds=float(heard["duration_seconds"]),
        engine=f"voxint {__version__}",
        models={
            "speech recognition": heard["model"],
            "diarization": spoken["diarizer"],
            "voices": spoken["voice_model"],
            "language model": enhanced["llm"]["model"],
        },
        notices=_notices(context, enhanced["llm"]),
        speakers=names,
        lines=tuple(
            Transcript.line(line, text, kept, names.get(line.speaker or "", "Unknown speaker"))
            for line, text, kept in lines
        ),
    )


def _named_since(context: StageContext) -> dict[str, str]:
    """Names that people gave while the recording was on its way."""
    if context.engine is None:
        return {}
    with context.engine.connect() as connection:
        return names_in(connection, context.run.id)


def _notices(context: StageContext, llm: dict[str, Any]) -> tuple[str, ...]:
    notices = [context.settings.llm_notice] if context.settings.llm_notice and llm["status"] == "done" else []
    if llm["status"] == "skipped":
        notices.append(f"Text as heard, without repair by a language model: {llm['why']}.")
    elif llm["kept"]:
        notices.append(f"{llm['kept']} of {llm['lines']} lines stand as they were heard: their repair was rejected.")
    return tuple(notices)
