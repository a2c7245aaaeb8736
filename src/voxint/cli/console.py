"""`voxint console`: what is done for the console from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from voxint.cli.environment import operator, parts
from voxint.cli.output import note, say

app = typer.Typer(help="The console: a link to sign in.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The console."""


@app.command()
def link(
    *,
    base: Annotated[
        str | None, typer.Option(help="The console's address in your browser, as https://voxint.example.")
    ] = None,
) -> None:
    """Print an address that signs in once, without the password."""
    from voxint.access.address import base_address, link_address  # noqa: PLC0415
    from voxint.access.store import LINK_LASTS  # noqa: PLC0415
    from voxint.gpu_phase.wording.figures import span  # noqa: PLC0415

    with parts() as made:
        token = made.access.make_link()
        made.record.note(operator(), "made a sign-in link")
        address = base or base_address(made.settings.console_bind)
    say(link_address(address, token))
    note(f"It works once, within {span(LINK_LASTS)}.")
