"""PURE: recordings as rows, lines and JSON."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.view import iso
from voxint.gpu_phase.wording import figures
from voxint.recordings.address import url_for_people

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.recordings.jobs.store import Job
    from voxint.recordings.run import Execution, Run, RunDetail

HEADS = ("id", "status", "stage", "progress", "length", "added", "title")
EXECUTION_HEADS = ("stage", "attempt", "started", "took", "outcome", "detail")
JOB_HEADS = ("job", "state", "progress", "for", "asked", "error")
ABSENT = "-"


def progress(run: Run) -> str:
    """How far the running stage is."""
    return ABSENT if run.progress is None else f"{run.progress:.0%}"


def row(run: Run) -> tuple[str, ...]:
    """A recording as a row of the list; the title stands last, as it may be long."""
    return (
        str(run.id),
        run.status,
        run.stage,
        progress(run),
        length(run),
        figures.moment(run.created_at, None),
        run.title,
    )


def length(run: Run) -> str:
    """How long the recording plays."""
    return ABSENT if run.duration_seconds is None else figures.span(timedelta(seconds=run.duration_seconds))


def source(run: Run) -> str:
    """Where the recording came from. What stands behind an address's path may be a secret: it is not shown."""
    return url_for_people(run.source) if run.source_kind == "url" else run.source


def lines(run: Run) -> list[tuple[str, str]]:
    """A recording as labels and values."""
    pairs = [
        ("id", str(run.id)),
        ("title", run.title),
        ("status", run.status),
        ("stage", run.stage),
        ("progress", progress(run)),
        ("source", source(run)),
        ("length", length(run)),
        ("language", run.language or ABSENT),
        ("added", figures.moment(run.created_at, None)),
        ("finished", figures.moment(run.finished_at, None) if run.finished_at else ABSENT),
        ("folder", str(run.folder)),
    ]
    if run.error:
        pairs.append(("error", run.error))
    if run.waiting_for:
        pairs.append(("waits for", run.waiting_for))
    return pairs + [("warning", warning) for warning in run.warnings]


def execution_row(execution: Execution) -> tuple[str, ...]:
    """One attempt at a stage."""
    took = figures.span(execution.ended_at - execution.started_at) if execution.ended_at else ABSENT
    return (
        execution.kind,
        str(execution.attempt),
        figures.moment(execution.started_at, None),
        took,
        execution.outcome or "running",
        execution.detail or "",
    )


def job_row(job: Job) -> tuple[str, ...]:
    """One job beside a recording."""
    return (
        job.kind,
        job.state,
        ABSENT if job.progress is None or job.state != "running" else f"{job.progress:.0%}",
        str(job.options.get("language", "")),
        figures.moment(job.queued_at, None),
        job.error or "",
    )


def job_record(job: Job) -> dict[str, object]:
    """One job beside a recording as a JSON object."""
    return {
        "kind": job.kind,
        "state": job.state,
        "options": dict(job.options),
        "queued_at": iso(job.queued_at),
        "finished_at": iso(job.finished_at),
        "progress": job.progress,
        "error": job.error,
    }


def record(run: Run) -> dict[str, object]:
    """A recording as a JSON object."""
    return {
        "id": run.id,
        "title": run.title,
        "status": run.status,
        "stage": run.stage,
        "progress": run.progress,
        "source": source(run),
        "source_kind": run.source_kind,
        "language": run.language,
        "speakers_min": run.speakers_min,
        "speakers_max": run.speakers_max,
        "duration_seconds": run.duration_seconds,
        "created_at": iso(run.created_at),
        "finished_at": iso(run.finished_at),
        "error": run.error,
        "waiting_for": run.waiting_for,
        "warnings": list(run.warnings),
        "folder": str(run.folder),
    }


def record_detail(detail: RunDetail, jobs: Sequence[Job] = ()) -> dict[str, object]:
    """A recording with its history, and the jobs beside it, as a JSON object."""
    executions = [
        {
            "kind": execution.kind,
            "attempt": execution.attempt,
            "worker": execution.worker,
            "started_at": iso(execution.started_at),
            "ended_at": iso(execution.ended_at),
            "outcome": execution.outcome,
            "detail": execution.detail,
        }
        for execution in detail.executions
    ]
    return {
        **record(detail.run),
        "executions": executions,
        "jobs": [job_record(job) for job in jobs],
        "results": list(detail.results),
    }
