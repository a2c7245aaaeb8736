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

    from voxint.access.record import Entry
    from voxint.access.store import Session
    from voxint.console.picture import Picture
    from voxint.doctor.finding import Finding
    from voxint.gpu_phase.view import PhaseView
    from voxint.recordings.roster import RosterEntry
    from voxint.recordings.run import Run

HOLD_HOURS = (2,)
"""Holds that are offered as buttons."""

FACTS = (
    ("request", "Request"),
    ("last error", "Last error"),
    ("lease expires", "Lease expires"),
    ("gpu lane", "GPU lane"),
    ("post lane", "Post lane"),
)
"""What the panel shows of the status lines, and under which names."""

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
    next_switch: str
    estimate: str
    """When the queue will be worked off; empty with nothing queued."""
    buttons: tuple[Button, ...]


@dataclass(frozen=True, slots=True)
class Button:
    """Something that an operator may ask for: where its form goes, its label, and what stands beside it."""

    to: str
    label: str
    help: str
    fields: tuple[tuple[str, str], ...] = ()


def moment(at: datetime, zone: tzinfo | None) -> Moment:
    """A moment for a page."""
    return Moment(figures.moment(at, zone), iso(at) or "")


def short(at: datetime, now: datetime, zone: tzinfo | None) -> Moment:
    """A moment where there is little room: the time alone where the day is today's."""
    there, here = at.astimezone(zone), now.astimezone(zone)
    text = f"{there:%H:%M}" if there.date() == here.date() else f"{there:%Y-%m-%d %H:%M}"
    return Moment(text, iso(at) or "")


def runs_page(
    view: PhaseView,
    runs: Sequence[Run],
    drawn: Picture | None,
    lanes: Mapping[str, Lane],
    zone: tzinfo | None,
    *,
    older: int | None = None,
    next_switch: str = "",
    estimate: str = "",
) -> RunsPage:
    """The first page.

    Args:
        view: the phase.
        runs: the recordings of this page, newest first.
        drawn: the timeline.
        lanes: the lane of each stage, in the stages' order.
        zone: the zone of the times.
        older: where the next page begins.
        next_switch: when the GPU changes hands.
        estimate: when the queue will be worked off.
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
        next_switch=next_switch,
        estimate=estimate,
        buttons=buttons(view),
    )


def buttons(view: PhaseView) -> tuple[Button, ...]:
    """What an operator may ask for now."""
    found = []
    if view.enabled:
        found.append(
            Button("/gpu/audio-now", "Audio now", "Switch to recordings now, past min dwell, backoff and hold.")
        )
        found.append(Button("/gpu/release", "Release", "Hand the GPU back now, or try that again after an error."))
        if view.held:
            found.append(Button("/gpu/resume", "End the hold", "Let switches begin by themselves again."))
        else:
            for hours in HOLD_HOURS:
                words = f"Let no switch to audio begin by itself for {hours} h. Audio now overrides it."
                found.append(Button("/gpu/hold", f"Hold for {hours} h", words, (("hours", str(hours)),)))
    if view.paused:
        found.append(Button("/queue/resume", "Go on", "Let recordings begin their work again."))
    else:
        found.append(Button("/queue/pause", "Pause", "Let no recording begin. What has begun goes on."))
    return tuple(found)


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
    quiet = {phases.ABSENT, "none"}
    facts = tuple((words, lines[name]) for name, words in FACTS if lines[name] not in quiet) if view.enabled else ()
    words = phases.phase_words(view)
    state = view.state
    return PhasePanel(
        name=view.phase_name if view.enabled else "off",
        words=words[0].upper() + words[1:],
        since=short(state.phase_since, view.now, zone) if view.enabled and state else None,
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
        added=short(run.created_at, view.now, zone),
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


@dataclass(frozen=True, slots=True)
class SpeakerRow:
    """A voice of the roster."""

    id: int
    name: str | None
    recordings: int
    spoken: str
    last_heard: Moment | None
    heard_in: tuple[tuple[int, str], ...]
    """The newest recordings: number and title."""


def speaker_rows(
    entries: Sequence[RosterEntry], heard_in: Mapping[int, Sequence[tuple[int, str]]], zone: tzinfo | None
) -> tuple[SpeakerRow, ...]:
    """Everybody who was heard."""
    return tuple(
        SpeakerRow(
            each.id,
            each.name,
            each.recordings,
            figures.span(timedelta(seconds=each.seconds)),
            moment(each.last_heard_at, zone) if each.last_heard_at else None,
            tuple(heard_in.get(each.id, ())),
        )
        for each in entries
    )


@dataclass(frozen=True, slots=True)
class SessionRow:
    """Somebody who is signed in."""

    who: str
    address: str
    since: Moment
    used: Moment
    is_mine: bool


def session_rows(sessions: Sequence[Session], mine: Session, zone: tzinfo | None) -> tuple[SessionRow, ...]:
    """Everybody who is signed in."""
    return tuple(
        SessionRow(
            each.who or "somebody",
            each.address,
            moment(each.made_at, zone),
            moment(each.used_at, zone),
            each.id == mine.id,
        )
        for each in sessions
    )


def record_rows(entries: Sequence[Entry], zone: tzinfo | None) -> tuple[tuple[Moment, str, str], ...]:
    """What people did: when, who, what."""
    return tuple((moment(each.at, zone), each.who, each.what) for each in entries)
