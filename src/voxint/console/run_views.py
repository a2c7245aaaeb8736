"""PURE: what was read of one recording, turned into what its page shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from voxint.console.spoken import Shown, clock, shown
from voxint.console.views import STAGE_WORDS, Moment, lane_state, moment, trouble
from voxint.gpu_phase.wording import figures
from voxint.recordings.address import url_for_people
from voxint.recordings.exports.document import Transcript
from voxint.recordings.exports.forms import FORMS
from voxint.recordings.speakers import numbered
from voxint.recordings.transcript import Line, Word, lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import tzinfo

    from voxint.gpu_phase.model import Lane
    from voxint.gpu_phase.view import PhaseView
    from voxint.recordings.jobs.store import Job
    from voxint.recordings.run import Execution, Run, RunDetail
    from voxint.recordings.versions import Version

JOB_WORDS = {
    "run_assets": "Summary, chapters and action points",
    "translation": "Translation",
    "speaker_research": "Names and roles of the speakers",
}
FORM_WORDS = {"txt": "Text", "srt": "SRT", "vtt": "VTT", "json": "JSON", "md": "Markdown"}
_SO_FAR = "This was heard so far. The transcript is not finished."
_JOB_STATES = {
    "queued": "queued",
    "running": "in progress",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class StageStep:
    """One stage on the way: `state` is done, running, waiting, failed, cancelled or ahead."""

    name: str
    state: str
    words: str
    percent: int | None


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt at a stage or job."""

    name: str
    attempt: int
    begun: Moment
    took: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """Something that was asked for beside the transcript."""

    words: str
    state: str
    asked: Moment
    error: str
    cancels: str | None
    """The kind to name where it can be cancelled; None where it is over."""


@dataclass(frozen=True, slots=True)
class Point:
    """A chapter or an action point, at its place in the recording."""

    line: int
    start: float
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Assets:
    """What the language model made of the transcript."""

    summary: str
    chapters: tuple[Point, ...]
    actions: tuple[Point, ...]
    model: str


@dataclass(frozen=True, slots=True)
class Hint:
    """What a line says about who a speaker is."""

    label: str
    speaker: str
    words: str
    quote: str
    line: int
    start: float
    at: str


@dataclass(frozen=True, slots=True)
class Head:
    """What stands over the page, and is asked for again while the recording is worked on."""

    id: int
    title: str
    status: str
    state: str
    steps: tuple[StageStep, ...]
    trouble: str
    facts: tuple[tuple[str, str], ...]
    is_over: bool
    can_cancel: bool
    can_requeue: bool
    can_delete: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """One recording."""

    head: Head
    tries: tuple[Try, ...]
    has_sound: bool
    spoken: Shown | None
    speakers: tuple[tuple[str, str, int], ...]
    """Label, name and number of a colour."""
    notices: tuple[str, ...]
    forms: tuple[tuple[str, str], ...]
    languages: tuple[str, ...]
    language: str | None
    versions: tuple[tuple[int, Moment, str], ...]
    version: int | None
    newest_version: int | None
    jobs: tuple[JobRow, ...]
    assets: Assets | None
    hints: tuple[Hint, ...]


def head(detail: RunDetail, view: PhaseView, lanes: Mapping[str, Lane], zone: tzinfo | None) -> Head:
    """The part over the transcript."""
    run = detail.run
    over = run.status in {"done", "failed", "cancelled"}
    return Head(
        id=run.id,
        title=run.title,
        status=run.status,
        state=lane_state(run, view, lanes),
        steps=tuple(_step(name, detail, lanes, view) for name in lanes),
        trouble=trouble(run),
        facts=tuple(_facts(run, zone)),
        is_over=over,
        can_cancel=not over,
        can_requeue=run.status in {"failed", "cancelled"},
        can_delete=over,
    )


def run_page(
    top: Head,
    detail: RunDetail,
    found: tuple[int, Transcript] | None,
    *,
    has_sound: bool,
    first: int,
    language: str | None,
    languages: Sequence[str],
    versions: Sequence[Version],
    jobs: Sequence[Job],
    results: Mapping[str, Any],
    zone: tzinfo | None,
) -> RunPage:
    """The whole page. `found` is the version of the transcript that is shown, in the language that is shown."""
    number, transcript = found or (None, heard_so_far(detail.run, results))
    spoken = shown(transcript, first) if transcript else None
    names = dict(transcript.speakers) if transcript and found else {}
    return RunPage(
        head=top,
        tries=tuple(_try(each, zone) for each in reversed(detail.executions)),
        has_sound=has_sound,
        spoken=spoken,
        speakers=tuple((label, name, place % 6 + 1) for place, (label, name) in enumerate(names.items())),
        notices=tuple(transcript.header) if transcript and found else (_SO_FAR,) if transcript else (),
        forms=tuple((name, FORM_WORDS.get(name, name)) for name in FORMS),
        languages=tuple(languages),
        language=language,
        versions=tuple((each.number, moment(each.made_at, zone), each.why) for each in reversed(versions)),
        version=number,
        newest_version=versions[-1].number if versions else None,
        jobs=tuple(_job(each, zone) for each in jobs),
        assets=_assets(results.get("run_assets")),
        hints=_hints(results.get("speaker_research"), names),
    )


def heard_so_far(run: Run, results: Mapping[str, Any]) -> Transcript | None:
    """What was heard before the transcript is frozen, also where a later stage has failed; None before that."""
    spoken, heard = results.get("diarize_embed"), results.get("transcribe")
    if spoken:
        lines = [Line.from_document(each) for each in spoken["lines"]]
    elif heard:
        lines = lines_of([[Word(**word) for word in words] for words in heard["segments"]], ())
    else:
        return None
    names = numbered([line.speaker for line in lines if line.speaker])
    return Transcript(
        title=run.title,
        run_id=run.id,
        language=heard["language"] if heard else run.language,
        duration_seconds=float(heard["duration_seconds"]) if heard else 0.0,
        engine="",
        models={},
        notices=(),
        speakers=names,
        lines=tuple(Transcript.line(line, line.text, None, names.get(line.speaker or "", "")) for line in lines),
    )


def _step(name: str, detail: RunDetail, lanes: Mapping[str, Lane], view: PhaseView) -> StageStep:
    run = detail.run
    order = list(lanes)
    mine = [each for each in detail.executions if each.kind == name]
    words = STAGE_WORDS.get(name, name)
    at = order.index(run.stage) if run.stage in order else 0
    if run.status == "done" or order.index(name) < at:
        took = sum(
            (each.ended_at - each.started_at for each in mine if each.ended_at and each.outcome == "done"), timedelta(0)
        )
        return StageStep(words, "done", figures.span(took) if mine else "", None)
    if order.index(name) > at:
        return StageStep(words, "ahead", "", None)
    if run.status == "running":
        percent = None if run.progress is None else round(run.progress * 100)
        return StageStep(words, "running", "in progress" if percent is None else f"{percent} %", percent)
    if run.status == "queued":
        return StageStep(words, "waiting", lane_state(run, view, lanes), None)
    return StageStep(words, run.status, run.status, None)


def _facts(run: Run, zone: tzinfo | None) -> list[tuple[str, str]]:
    found = [("Recording", str(run.id)), ("Added", figures.moment(run.created_at, zone))]
    if run.duration_seconds is not None:
        found.append(("Length", clock(run.duration_seconds)))
    if run.language:
        found.append(("Language", run.language))
    if run.source_kind == "url":
        found.append(("From", url_for_people(run.source)))
    elif run.source_kind == "file":
        found.append(("From", run.source))
    if run.finished_at:
        found.append(("Finished", figures.moment(run.finished_at, zone)))
    return found


def _try(execution: Execution, zone: tzinfo | None) -> Try:
    took = figures.span(execution.ended_at - execution.started_at) if execution.ended_at else ""
    name = STAGE_WORDS.get(execution.kind) or JOB_WORDS.get(execution.kind, execution.kind)
    outcome = (execution.outcome or "in progress").replace("_", " ")
    return Try(name, execution.attempt, moment(execution.started_at, zone), took, outcome, execution.detail or "")


def _job(job: Job, zone: tzinfo | None) -> JobRow:
    words = JOB_WORDS.get(job.kind, job.kind)
    language = str(job.options.get("language", ""))
    percent = f", {job.progress:.0%}" if job.progress and job.state == "running" else ""
    state = _JOB_STATES.get(job.state, job.state) + percent
    cancels = job.kind if job.state in {"queued", "running"} else None
    named = f"{words} ({language})" if language else words
    return JobRow(named, state, moment(job.queued_at, zone), job.error or "", cancels)


def _assets(data: Mapping[str, Any] | None) -> Assets | None:
    if not data:
        return None
    return Assets(
        str(data.get("summary") or ""),
        _points(data.get("chapters")),
        _points(data.get("actions")),
        str(data.get("model") or ""),
    )


def _points(listed: object) -> tuple[Point, ...]:
    points = listed if isinstance(listed, list) else []
    return tuple(
        Point(int(each["line"]), float(each["start"]), clock(float(each["start"])), str(each["text"]))
        for each in points
    )


def _hints(data: Mapping[str, Any] | None, names: Mapping[str, str]) -> tuple[Hint, ...]:
    findings = (data or {}).get("findings")
    return tuple(
        Hint(
            str(each["speaker"]),
            names.get(str(each["speaker"]), str(each["speaker"])),
            ", ".join(str(part) for part in (each["name"], each["role"]) if part),
            str(each["quote"]),
            int(each["line"]),
            float(each["start"]),
            clock(float(each["start"])),
        )
        for each in (findings if isinstance(findings, list) else [])
    )
