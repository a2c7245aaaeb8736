"""`voxint speakers`: the voices that are known across recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, say, say_json, say_table

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(help="Voices known across recordings: look, name, merge.", no_args_is_help=True)
SpeakerId = Annotated[int, typer.Argument(metavar="SPEAKER", help="A number from `voxint speakers list`.", min=1)]


@app.command(name="list")
def list_speakers(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Everybody who was heard, those with a name first."""
    with parts() as made:
        found = made.roster.list()
    if as_json:
        say_json(
            [
                {
                    "id": each.id,
                    "name": each.name,
                    "recordings": each.recordings,
                    "seconds": round(each.seconds, 1),
                    "last_heard_at": each.last_heard_at.isoformat() if each.last_heard_at else None,
                }
                for each in found
            ]
        )
        return
    if not found:
        say("No voice is known yet.")
        return
    rows = [(str(each.id), each.name or "(no name)", str(each.recordings), f"{each.seconds:.0f} s") for each in found]
    say_table(("id", "name", "recordings", "speech"), rows)


@app.command()
def rename(speaker: SpeakerId, name: Annotated[str, typer.Argument(help="The name.")]) -> None:
    """Give a voice a name; transcripts get a new version with it."""
    with parts() as made:
        _change(lambda: made.roster.rename(speaker, name))
    say(f"speaker {speaker} is {name}")


@app.command()
def merge(
    speaker: SpeakerId, into: Annotated[int, typer.Argument(metavar="INTO", help="Who they really are.", min=1)]
) -> None:
    """Say that two entries are one person; the second stays."""
    with parts() as made:
        _change(lambda: made.roster.merge(speaker, into))
    say(f"speaker {speaker} is now part of speaker {into}")


@app.command()
def name(
    run: Annotated[int, typer.Argument(metavar="RUN", help="The recording's number.", min=1)],
    label: Annotated[str, typer.Argument(help="The speaker's label in the recording, as SPEAKER_00.")],
    called: Annotated[str, typer.Argument(metavar="NAME", help="The name.")],
) -> None:
    """Say who speaks in one recording."""
    with parts() as made:
        _change(lambda: made.roster.name_in_run(run, label, called))
    say(f"{label} of recording {run} is {called}")


def _change(step: Callable[[], None]) -> None:
    from voxint.recordings.roster import NoSpeakerError  # noqa: PLC0415

    try:
        step()
    except (NoSpeakerError, ValueError) as error:
        raise CouldNotError(str(error)) from error
