"""`voxint`: the commands, and what becomes of an error.

Exit status: 0 done, 1 could not (the reason is on stderr), 2 wrong usage. Nothing is imported here that a command may
not need: `voxint --help` and `voxint gpu-phase status` answer at once.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from voxint.cli import (
    console,
    database,
    doctor,
    gpu_phase,
    init,
    models,
    placement,
    processes,
    runs,
    speakers,
    standalone,
    transcripts,
)
from voxint.cli.output import CouldNotError, complain

if TYPE_CHECKING:
    from collections.abc import Sequence

COULD_NOT = 1
INTERRUPTED = 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

app = typer.Typer(
    help="Takes turns on one GPU: a language model on one side, a transcription stack on the other.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(runs.app, name="runs")
app.add_typer(speakers.app, name="speakers")
app.add_typer(gpu_phase.app, name="gpu-phase")
app.add_typer(placement.app, name="placement")
app.add_typer(console.app, name="console")
app.add_typer(database.app, name="db")
app.command(name="doctor")(doctor.doctor)
transcripts.register(runs.app)
processes.register(app)
models.register(app)
init.register(app)
standalone.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit status. An expected error is a line on stderr, without a trace."""
    _ready_streams()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _write_no_more()
        return COULD_NOT
    except Exception as error:
        text = expected(error)
        if text is None:
            raise
        if isinstance(error, OSError):
            _write_no_more()
        complain(text)
        return COULD_NOT
    return status


def _ready_streams() -> None:
    """A file name need not be valid text, a terminal need not know every character, and a stream may be closed."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it lasts as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=arguments if arguments is None else list(arguments), prog_name="voxint")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else COULD_NOT
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _write_no_more() -> None:
    """What could not be written is let go of: Python would try, and complain, once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def expected(error: Exception) -> str | None:
    """The lines for an error that a person can act on; None for one that is a fault of ours."""
    if isinstance(error, CouldNotError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
        return f"cannot write: {error.strerror}"
    settings = sys.modules.get("voxint.settings")
    if settings is not None and isinstance(error, settings.SettingsError):
        return str(error)
    sqlalchemy = sys.modules.get("sqlalchemy.exc")
    if sqlalchemy is not None and isinstance(error, sqlalchemy.SQLAlchemyError):
        return _database(error)
    return None


def _database(error: Exception) -> str | None:
    from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError  # noqa: PLC0415
    from sqlalchemy.exc import TimeoutError as Late  # noqa: PLC0415

    from voxint.cli.environment import settings  # noqa: PLC0415
    from voxint.db.trouble import not_migrated, place, words  # noqa: PLC0415

    if not isinstance(error, (DBAPIError, Late)) or isinstance(error, IntegrityError):
        return None
    if isinstance(error, ProgrammingError) and error.statement is not None and not not_migrated(error):
        return None
    return words(error, place(settings()))
