"""`voxint runs export|schema|versions|ask|jobs|delete`: what was made of a recording, and what is made of it when asked."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, complain, say, say_json, say_table

if TYPE_CHECKING:
    from voxint.wiring import Parts

RunId = Annotated[int, typer.Argument(metavar="RUN", help="The recording's number.", min=1)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of recordings."""
    for command in (export, schema, versions, ask, jobs, delete):
        app.command()(command)


def export(
    run: RunId,
    form: Annotated[str, typer.Option("--format", help="txt, srt, vtt, json or md.")] = "txt",
    version: Annotated[int | None, typer.Option(help="A version; the newest where it is left out.", min=1)] = None,
    language: Annotated[str | None, typer.Option(help="A translation that was made.")] = None,
    to: Annotated[Path | None, typer.Option(help="A file, or a folder; stdout where it is left out.")] = None,
) -> None:
    """Give a transcript out."""
    from voxint.recordings.versions import NoTranscriptError  # noqa: PLC0415

    with parts() as made:
        try:
            found = made.transcripts.export(run, form, number=version, language=language)
        except NoTranscriptError as error:
            raise CouldNotError(str(error)) from error
    if to is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(found.body)
        return
    path = to / found.name if to.is_dir() else to
    try:
        path.write_bytes(found.body)
    except OSError as error:
        raise CouldNotError(f"cannot write {path}: {error.strerror or error}") from error
    say(str(path))


def schema() -> None:
    """Print the JSON schema of transcripts in JSON."""
    from voxint.recordings.exports.forms import schema as shipped  # noqa: PLC0415

    sys.stdout.write(shipped())


def versions(run: RunId, *, as_json: Json = False) -> None:
    """The versions of a transcript: each is as it was frozen, whatever came later."""
    with parts() as made:
        there(made, run)
        found = made.transcripts.versions(run)
    if as_json:
        say_json([{"number": each.number, "made_at": each.made_at.isoformat(), "why": each.why} for each in found])
        return
    if not found:
        raise CouldNotError(f"recording {run} has no transcript yet")
    say_table(("version", "made", "why"), [(str(each.number), _local(each.made_at), each.why) for each in found])


def ask(
    run: RunId,
    job: Annotated[str, typer.Argument(help="run_assets, translation or speaker_research.")],
    language: Annotated[str | None, typer.Option(help="What a translation goes into, as de.")] = None,
) -> None:
    """Ask the language model for more about a recording that is done."""
    from voxint.recordings.lifecycle import NotPossibleError  # noqa: PLC0415
    from voxint.work.publish import wake_after_adding  # noqa: PLC0415

    with parts() as made:
        try:
            made.jobs.ask(run, job, language=language)
        except NotPossibleError as error:
            raise CouldNotError(str(error)) from error
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        wake_after_adding(made.settings)
    say(f"{job} of recording {run} is queued: `voxint runs jobs {run}` shows what becomes of it")


def jobs(run: RunId, *, as_json: Json = False) -> None:
    """What was asked for beside a transcript, and what came of it."""
    from voxint.cli.runs_view import JOB_HEADS, job_record, job_row  # noqa: PLC0415

    with parts() as made:
        there(made, run)
        found = made.jobs.list(run)
        results = made.run_store.results(run) if as_json else {}
    if as_json:
        kinds = {each.kind for each in found}
        say_json(
            {
                "jobs": [job_record(each) for each in found],
                "results": {kind: results[kind] for kind in sorted(kinds & set(results))},
            }
        )
        return
    if not found:
        say("Nothing was asked for.")
        return
    say_table(JOB_HEADS, [job_row(each) for each in found])


def delete(
    runs: Annotated[list[int], typer.Argument(metavar="RUN...", help="The recordings' numbers.", min=1)],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Really: it cannot be taken back.")] = False,
) -> None:
    """Take recordings away, with their files and all that was made of them."""
    from voxint.recordings.lifecycle import NotPossibleError  # noqa: PLC0415

    if not yes:
        raise typer.BadParameter("a deleted recording cannot be brought back: say --yes")
    refused = []
    with parts() as made:
        for run in runs:
            try:
                made.run_store.delete(run)
                say(f"recording {run} is deleted")
            except NotPossibleError as error:
                refused.append(str(error))
    for words in refused:
        complain(words)
    if refused:
        raise typer.Exit(1)


def there(made: Parts, run: int) -> None:
    """Nothing is told of a recording that is not there.

    Raises:
        CouldNotError: it is not.
    """
    if made.run_store.get(run) is None:
        raise CouldNotError(f"there is no recording {run}: `voxint runs list` shows those that are there")


def _local(moment: object) -> str:
    from datetime import datetime  # noqa: PLC0415

    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if isinstance(moment, datetime) else ""
