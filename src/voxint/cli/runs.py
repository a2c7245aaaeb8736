"""`voxint runs`: recordings in, their state, and what people do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli.environment import operator, parts
from voxint.cli.output import CouldNotError, complain, say, say_json, say_pairs, say_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.recordings.run import RunDetail
    from voxint.wiring import Parts

app = typer.Typer(help="Recordings: add, look, requeue, cancel, pause.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunId = Annotated[int, typer.Argument(metavar="RUN", help="The recording's number.", min=1)]


@app.command()
def add(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE_OR_URL...", help="Media files, or http(s) addresses of them.")
    ],
    *,
    title: Annotated[str | None, typer.Option(help="Shown instead of the file's name; for one file.")] = None,
    language: Annotated[
        str | None, typer.Option(help="A code such as en; the model tells where it is left out.")
    ] = None,
    speakers: Annotated[str | None, typer.Option(help="How many speak: 2, or 2-4.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for their end, and tell each step on stderr.")] = False,
    as_json: Json = False,
) -> None:
    """Queue recordings. A file that is none is refused, and the others are queued all the same.

    With --wait the exit status is 1 also where one of them failed or was cancelled.
    """
    from voxint.cli.runs_follow import until_ended  # noqa: PLC0415
    from voxint.recordings.errors import NotAddedError  # noqa: PLC0415
    from voxint.work.publish import wake_after_adding  # noqa: PLC0415

    if title is not None and len(files) > 1:
        raise typer.BadParameter("--title is for one file")
    added, refused = [], []
    with parts() as made:
        for file in files:
            try:
                added.append(made.run_store.add(file, title=title, language=language, speakers=speakers))
            except NotAddedError as error:
                refused.append(str(error))
        if added:
            wake_after_adding(made.settings)
        if wait:
            added = until_ended(made.run_store, added)
    if as_json:
        from voxint.cli.runs_view import record  # noqa: PLC0415

        say_json([record(run) for run in added])
    else:
        for run in added:
            say(f"{run.id}  {run.title}" + (f"  {run.status}" if wait else ""))
    for text in refused:
        complain(text)
    if refused or (wait and any(run.status != "done" for run in added)):
        raise typer.Exit(1)


@app.command(name="list")
def list_runs(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """The newest recordings, with stage and progress."""
    from voxint.cli import runs_view  # noqa: PLC0415

    with parts() as made:
        found = made.run_store.list(limit=limit)
    if as_json:
        say_json([runs_view.record(run) for run in found])
    elif not found:
        say("There are no recordings yet: `voxint runs add FILE` queues one.")
    else:
        say_table(runs_view.HEADS, [runs_view.row(run) for run in found])


@app.command()
def show(run: RunId, *, as_json: Json = False) -> None:
    """One recording: its state, what was done to it, and where its files are."""
    from voxint.cli import runs_view  # noqa: PLC0415

    with parts() as made:
        detail = _detail(made, run)
        asked = made.jobs.list(run)
    if as_json:
        say_json(runs_view.record_detail(detail, asked))
        return
    say_pairs(runs_view.lines(detail.run))
    if detail.executions:
        say("")
        say_table(runs_view.EXECUTION_HEADS, [runs_view.execution_row(execution) for execution in detail.executions])
    if asked:
        say("")
        say_table(runs_view.JOB_HEADS, [runs_view.job_row(job) for job in asked])


@app.command()
def requeue(run: RunId) -> None:
    """Let a failed or cancelled recording go on at the stage where it stopped."""
    from voxint.work.publish import wake_after_adding  # noqa: PLC0415

    with parts() as made:
        stage = _change(lambda: made.lifecycle.requeue(run))
        wake_after_adding(made.settings)
    say(f"recording {run} is queued again, at {stage}")


@app.command()
def cancel(
    run: RunId,
    job: Annotated[
        str | None, typer.Option("--job", help="Only this job beside it: run_assets, translation, speaker_research.")
    ] = None,
) -> None:
    """End a recording that is not done, or one job beside it."""
    with parts() as made:
        if job is None:
            _change(lambda: made.lifecycle.cancel(run))
        else:
            kind = job
            _change(lambda: made.jobs.cancel(run, kind))
    say(f"recording {run} is cancelled" if job is None else f"{job} of recording {run} is cancelled")


@app.command()
def pause() -> None:
    """Let no recording begin its GPU work. What has begun goes on to the end of its GPU segment."""
    with parts() as made:
        made.phase_store.set_paused(paused=True, by=operator())
    say("The queue is paused: no recording begins, and no switch to audio either. `voxint runs resume` ends it.")


@app.command()
def resume() -> None:
    """End the pause."""
    from voxint.work.publish import wake_after_adding  # noqa: PLC0415

    with parts() as made:
        was_paused = made.phase_store.control().paused_at is not None
        made.phase_store.set_paused(paused=False, by=operator())
        wake_after_adding(made.settings)
    say("The queue goes on." if was_paused else "The queue was not paused.")


def _detail(made: Parts, run_id: int) -> RunDetail:
    detail = made.run_store.show(run_id)
    if detail is None:
        raise CouldNotError(f"there is no recording {run_id}: `voxint runs list` shows those that are there")
    return detail


def _change(step: Callable[[], str | None]) -> str | None:
    from voxint.recordings.lifecycle import NotPossibleError  # noqa: PLC0415

    try:
        return step()
    except NotPossibleError as error:
        raise CouldNotError(str(error)) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
