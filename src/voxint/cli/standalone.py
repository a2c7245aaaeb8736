"""`voxint standalone` and `voxint demo`: everything on one machine, without Docker, a GPU, or servers to install."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from voxint.cli.environment import data_folder
from voxint.cli.output import CouldNotError, note


def register(app: typer.Typer) -> None:
    """Put the commands on the main app."""
    app.command(name="standalone")(standalone)
    app.command(name="demo")(demo)


def standalone(
    *,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder for everything; VOXINT_HOME, or your own data folder.")
    ] = None,
    stand_ins: Annotated[
        bool, typer.Option("--stand-ins", help="Quick stand-ins in place of the models, to try the turns.")
    ] = False,
    no_link: Annotated[bool, typer.Option("--no-link", help="Print no link that signs in at the console.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the one that runs, or what is left of one that was killed.")
    ] = False,
) -> None:
    """Run everything here until Ctrl-C: database, workers, broker, models, console."""
    from voxint.db.migrate import SchemaError  # noqa: PLC0415
    from voxint.standalone.home import Home, HomeError  # noqa: PLC0415 - psutil and psycopg are for those who run it
    from voxint.standalone.postgres import PostgresError  # noqa: PLC0415
    from voxint.standalone.sockets import SocketFolderError  # noqa: PLC0415
    from voxint.standalone.supervisor import Options, run_standalone, stop_standalone  # noqa: PLC0415
    from voxint.standalone.valkey import ValkeyError  # noqa: PLC0415

    home = Home((data or data_folder(os.environ)).absolute())
    try:
        if stop:
            status = stop_standalone(home, _say)
        else:
            options = Options(models="stand-ins" if stand_ins else "offline", with_link=not no_link)
            status = run_standalone(home, options, os.environ, _say)
    except (HomeError, PostgresError, ValkeyError, SocketFolderError, SchemaError) as error:
        raise CouldNotError(str(error)) from error
    except OSError as error:  # a full disk, a folder that may not be written
        raise CouldNotError(_file_words(error, home.folder)) from error
    raise typer.Exit(status)


def demo(
    audio: Annotated[
        list[Path] | None, typer.Argument(help="Recordings of your own, in place of the samples.", show_default=False)
    ] = None,
    *,
    into: Annotated[Path, typer.Option("--into", help="The folder for transcripts, timeline and data.")] = Path("demo"),
    again: Annotated[bool, typer.Option("--again", help="Do recordings anew that an earlier call has done.")] = False,
    stand_ins: Annotated[bool, typer.Option("--stand-ins", hidden=True)] = False,
) -> None:
    """Run everything here on recordings, to the end: transcripts, and who had the GPU on the way."""
    from voxint.standalone.demo.items import DemoError  # noqa: PLC0415
    from voxint.standalone.demo.run import Wish, run_demo  # noqa: PLC0415
    from voxint.standalone.demo.view import screen  # noqa: PLC0415
    from voxint.standalone.home import HomeError  # noqa: PLC0415
    from voxint.standalone.postgres import PostgresError  # noqa: PLC0415

    wish = Wish(audio or [], into, again=again, stand_ins=stand_ins)
    try:
        status = run_demo(wish, os.environ, screen())
    except (DemoError, HomeError, PostgresError) as error:
        raise CouldNotError(str(error)) from error
    except OSError as error:
        raise CouldNotError(_file_words(error, into.absolute())) from error
    raise typer.Exit(status)


def _file_words(error: OSError, folder: Path) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"could not run in {folder}: {error.strerror or error}{where}"


def _say(text: str) -> None:
    note(f"standalone: {text}")
    sys.stderr.flush()
