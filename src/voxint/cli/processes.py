"""The long-running processes: `voxint worker`, `voxint beat`, `voxint serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from voxint.cli import environment


def register(app: typer.Typer) -> None:
    """Put the commands on the main app."""
    app.command(name="worker")(worker)
    app.command(name="beat")(beat)
    app.command(name="serve")(serve)


def worker(
    *,
    gpu_phase: Annotated[
        bool, typer.Option("--gpu-phase", help="Run the phase task alone: it starts and stops the model services.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="How many stages run at the same time.")] = 4,
) -> None:
    """Work on recordings until told to stop."""
    settings = environment.settings()
    if gpu_phase:
        refuse_without_control(settings.service_control)
    from voxint.work.processes import run_worker  # noqa: PLC0415 - celery is for those who work

    raise typer.Exit(run_worker(settings, gpu_phase=gpu_phase, concurrency=concurrency))


def refuse_without_control(service_control: str) -> None:
    """The phase task starts and stops the model services: without a way to do so it must not run.

    Raises:
        SettingsError: SERVICE_CONTROL is none.
    """
    from voxint.settings import SettingsError  # noqa: PLC0415

    if service_control == "none":
        raise SettingsError(
            ["SERVICE_CONTROL: the gpu-phase worker must start and stop the model services: use docker or process"]
        )


def beat() -> None:
    """Send the periodic messages until told to stop."""
    settings = environment.settings()
    from voxint.work.processes import run_beat  # noqa: PLC0415

    raise typer.Exit(run_beat(settings))


def serve() -> None:
    """Serve the console until told to stop."""
    settings = environment.settings()
    from voxint.console.server import run  # noqa: PLC0415 - fastapi is for those who serve

    raise typer.Exit(run(settings))
