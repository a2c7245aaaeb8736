"""`voxint db`: the schema of the database."""

from __future__ import annotations

import typer

from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, say

app = typer.Typer(help="The database's schema.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The database's schema."""


@app.command()
def upgrade() -> None:
    """Bring the database to this version's schema. Safe to repeat, and to run on several machines at once."""
    from voxint.db import migrate  # noqa: PLC0415 - alembic costs a second

    with parts() as made:
        before = migrate.current(made.engine)
        try:
            after = migrate.upgrade(made.engine)
        except migrate.SchemaError as error:
            raise CouldNotError(str(error)) from error
    say(f"the database is at {after}" + (": nothing to do" if before == after else f", it was at {before or 'none'}"))
