"""`voxint models`: the weights of the model services. The servers' own package knows them, and runs as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from voxint.cli.output import CouldNotError

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVERS = "voxint_models"
IN_COMPOSE = "docker compose run --rm --no-deps -e HF_TOKEN --entrypoint python3 whisper -m voxint_models.weights"
"""Past the image's own entrypoint, which lets nothing start out of turn: a fetch needs no GPU."""

_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Put `models` under the application."""

    @app.command(context_settings=_ANYTHING)
    def models(context: typer.Context) -> None:
        """List or fetch the weights of the model services: `voxint models list`, `voxint models fetch`."""
        raise typer.Exit(run(context.args))


def run(arguments: Sequence[str]) -> int:
    """Hand the arguments to the servers' package; gives its exit status.

    Raises:
        CouldNotError: that package is not here, as in the application's image.
    """
    if find_spec(SERVERS) is None:
        raise CouldNotError(
            f"the model servers are not part of this installation: run {IN_COMPOSE} {' '.join(arguments) or 'list'}"
        )
    argv = [sys.executable, "-m", f"{SERVERS}.weights", *arguments]
    return subprocess.run(argv, env=dict(os.environ), check=False).returncode
