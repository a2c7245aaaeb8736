"""PURE: what was read, turned into what the pages show. Templates only lay it out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.doctor.finding import Severity
from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.view import iso
from voxint.gpu_phase.wording import figures, notices, phases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, tzinfo

    from voxint.console.picture import Picture
    from voxint.doctor.finding import Finding
    from voxint.gpu_phase.view import PhaseView
    from voxint.recordings.run import Run

STAGE_WORDS = {
    "acquire": "Take in",
    "prepare": "Prepare",
    "transcribe": "Transcribe",
    "diarize_embed": "Find speakers",
    "enhance_match": "Enhance",
    "finalize": "Finish",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment for a page: as people read it, and as machines do."""

    text: str
    iso: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One recording in the list."""

    id: int
    title: str
    status: str
    stage: str
    stage_number: int
    stage_count: int
    percent: int | None
    state: str
    added: Moment
    length: str
    trouble: str


@dataclass(frozen=True, slots=True)
class PhasePanel:
    """Who has the GPU, in plain words."""

    name: str
    words: str
    since: Moment | None
    lasted: str
    facts: tuple[tuple[str, str], ...]
    alive: bool


@dataclass(frozen=True, slots=True)
class RunsPage:
    """The first page."""

    summary: str
    """In the page's title: what waits, and for what."""
    notices: tuple[notices.Notice, ...]
    strip: str
    strip_note: str
    panel: PhasePanel
    picture: Picture | None
    rows: tuple[RunRow, ...]
    older: int | None
    """The number below which the next page begins; None on the last one."""
    at: Moment


def moment(at: datetime, zone: tzinfo | None) -> Moment:
    """A moment for a page."""
    return Moment(figures.moment(at, zone), iso(at) or "")


def runs_page(
    view: PhaseView,
    runs: Sequence[Run],
    drawn: Picture | None,
    lanes: Mapping[str, Lane],
    zone: tzinfo | None,
    *,
    older: int | None = None,
) -> RunsPage:
    """The first page.

    Args:
        view: the phase.
        runs: the recordings of this page, newest first.
        drawn: the timeline.
        lanes: the lane of each stage, in the stages' order.
        zone: the zone of the times.
        older: where the next page begins.
    """
    told = notices.notices(view, zone)
    return RunsPage(
        summary=summary(view, told),
        notices=told,
        strip=strip(view),
        strip_note=first_sentence(told[0].text) if told else "",
        panel=panel(view, zone),
        picture=drawn,
        rows=tuple(run_row(run, view, lanes, zone) for run in runs),
        older=older,
        at=moment(view.now, zone),
    )


def summary(view: PhaseView, told: Sequence[notices.Notice]) -> str:
    """What waits and works, and the loudest notice's first sentence."""
    counted = strip(view)
    return f"{first_sentence(told[0].text)} - {counted}" if told else counted


def first_sentence(text: str) -> str:
    """The head of a notice, for where there is little room."""
    return text.split(". ", maxsplit=1)[0].rstrip(".")


def strip(view: PhaseView) -> str:
    """What works and what waits, in one line."""
    working = view.gpu_lane.running + view.post_lane.running
    waiting = view.gpu_lane.waiting + view.post_lane.waiting
    if not working and not waiting:
        return "Nothing is queued"
    return f"{working:,} in progress, {waiting:,} queued"


def panel(view: PhaseView, zone: tzinfo | None) -> PhasePanel:
    """Who has the GPU."""
    lines = dict(phases.status_lines(view, zone))
    shown = ("lease expires", "next try", "request", "last error", "gpu lane", "post lane")
    quiet = {phases.ABSENT, "none"}
    facts = tuple((name, lines[name]) for name in shown if lines[name] not in quiet) if view.enabled else ()
    words = phases.phase_words(view)
    state = view.state
    return PhasePanel(
        name=view.phase_name if view.enabled else "off",
        words=words[0].upper() + words[1:],
        since=moment(state.phase_since, zone) if view.enabled and state else None,
        lasted=figures.span(view.now - state.phase_since) if view.enabled and state else "",
        facts=facts,
        alive=view.task_running or not view.enabled,
    )


def run_row(run: Run, view: PhaseView, lanes: Mapping[str, Lane], zone: tzinfo | None) -> RunRow:
    """One recording in the list."""
    stages = list(lanes)
    return RunRow(
        id=run.id,
        title=run.title,
        status=run.status,
        stage=STAGE_WORDS.get(run.stage, run.stage),
        stage_number=len(stages) if run.status == "done" else stages.index(run.stage) + 1 if run.stage in stages else 0,
        stage_count=len(stages),
        percent=None if run.progress is None else round(run.progress * 100),
        state=lane_state(run, view, lanes),
        added=moment(run.created_at, zone),
        length=figures.span(timedelta(seconds=run.duration_seconds)) if run.duration_seconds is not None else "",
        trouble=trouble(run),
    )


def lane_state(run: Run, view: PhaseView, lanes: Mapping[str, Lane]) -> str:
    """What a recording waits for, or that it does not."""
    if run.status != "queued":
        return {"running": "in progress"}.get(run.status, run.status)
    lane = lanes.get(run.stage)
    if lane is Lane.GPU and view.paused:
        return "waits: the queue is paused"
    if lane is Lane.GPU and not view.gpu_lane.open:
        return "waits for the GPU"
    if lane is Lane.POST and not view.post_lane.open:
        return "waits for the language model"
    return "queued"


def trouble(run: Run) -> str:
    """Why it failed, why it was put back, or what to know about it."""
    if run.error:
        return run.error
    if run.waiting_for and run.status == "queued":
        return run.waiting_for
    return "; ".join(run.warnings)


@dataclass(frozen=True, slots=True)
class StatusPage:
    """A row a check: doctor's own findings."""

    summary: str
    findings: tuple[Finding, ...]
    notices: tuple[notices.Notice, ...]
    picture: Picture | None
    changes: tuple[tuple[str, ...], ...]


def status_page(
    findings: Sequence[Finding],
    told: Sequence[notices.Notice],
    drawn: Picture | None,
    changes: Sequence[tuple[str, ...]],
) -> StatusPage:
    """The status page. `changes` are rows of the history, newest first."""
    failed = sum(1 for finding in findings if finding.severity is Severity.FAIL)
    words = f"{figures.count(failed, 'check')} failed" if failed else "No check failed"
    return StatusPage(words, tuple(findings), tuple(told), drawn, tuple(changes))
