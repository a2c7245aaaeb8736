"""`voxint placement`: whether the model services really work on the GPU, and how one can know."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from voxint.cli.environment import parts
from voxint.cli.output import CouldNotError, note, say_json, say_table
from voxint.cli.placement_probe import Json, Service, known, probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from voxint.services.placement.view import Row
    from voxint.settings import Settings

app = typer.Typer(help="Whether the model services really work on the GPU.", no_args_is_help=False)

LINES = 100_000


@app.callback(invoke_without_command=True)
def table(
    context: typer.Context,
    *,
    as_json: Json = False,
) -> None:
    """Where each service works, and how that is known. Exit status 1 where one is on the wrong device."""
    if context.invoked_subcommand is not None:
        return
    from voxint.services.placement.judge import Verdict  # noqa: PLC0415
    from voxint.services.placement.tables import row_values  # noqa: PLC0415
    from voxint.services.placement.view import rows  # noqa: PLC0415

    with parts() as made:
        found = rows(made.settings, made.placement_store.placed(), made.placement_sources)
        chosen = made.settings
    if as_json:
        about = {"tier": chosen.compute_tier, "action": chosen.gpu_placement_action}
        say_json(about | {"services": [row_values(row) for row in found]})
    else:
        _print(found, chosen)
    if any(row.verdict is Verdict.WRONG for row in found):
        raise typer.Exit(1)


def _print(found: tuple[Row, ...], chosen: Settings) -> None:
    from voxint.services.placement.judge import Verdict  # noqa: PLC0415
    from voxint.services.placement.tables import HEADS, WHAT_TO_DO, row_cells  # noqa: PLC0415

    say_table(HEADS, [row_cells(row) for row in found])
    if all(row.verdict is Verdict.NOT_EXPECTED for row in found):
        note(f"COMPUTE_TIER={chosen.compute_tier}: no service is expected on a GPU, so none can be wrong.")
    elif chosen.gpu_placement_action == "off":
        note("GPU_PLACEMENT_ACTION=off: the phase task does not look; this table did.")
    if any(row.verdict in {Verdict.WRONG, Verdict.SLOW} for row in found):
        note(WHAT_TO_DO + ".", "warn")


@app.command()
def log(
    service: Service,
    file: Annotated[
        Path | None, typer.Argument(help="A log to read, `-` for standard input. Without one, the service's own.")
    ] = None,
    *,
    as_json: Json = False,
    cpu_below: Annotated[float, typer.Option(min=0, help="Characters a second below which it is a CPU.")] = 200,
    gpu_from: Annotated[float, typer.Option(min=0, help="Characters a second from which on it is a GPU.")] = 400,
) -> None:
    """The speed of each process of a text-to-speech service, from its log: grouped by process start.

    Best with the engine's times: docker logs -t CONTAINER 2>&1 | voxint placement log SERVICE -
    """
    from voxint.services.placement.regimes import Bounds, starts_of  # noqa: PLC0415
    from voxint.services.placement.tables import REGIME_HEADS, regime_rows, regime_summary, regime_values  # noqa: PLC0415

    if cpu_below > gpu_from:
        raise typer.BadParameter("--cpu-below must not be above --gpu-from")
    with _lines(service, file) as lines:
        starts = starts_of(lines, Bounds(cpu_below, gpu_from))
    if as_json:
        say_json({"service": service, "starts": regime_values(starts)})
        return
    if starts:
        say_table(REGIME_HEADS, regime_rows(starts))
    for sentence in regime_summary(starts):
        note(sentence)


@contextmanager
def _lines(service: str, file: Path | None) -> Iterator[Iterator[str]]:
    if file is None:
        yield iter(_own_log(service))
        return
    if str(file) == "-":
        if sys.stdin is None:
            raise CouldNotError("cannot read -: standard input is closed")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
    try:
        opened: AbstractContextManager[object] = (
            nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8", errors="replace")
        )
        with opened as stream:
            yield stream  # type: ignore[misc]
    except OSError as error:
        raise CouldNotError(f"cannot read {file}: {error.strerror or error}") from error


def _own_log(service: str) -> list[str]:
    from voxint.services.placement.service_log import NoLogError, log_lines  # noqa: PLC0415

    otherwise = f"Pipe it in: docker logs -t CONTAINER 2>&1 | voxint placement log {service} -"
    with parts() as made:
        known(made.settings, service)
        if made.settings.service_control == "none":
            raise CouldNotError(f"SERVICE_CONTROL=none: the log of {service} cannot be read from here. {otherwise}")
        unreachable = getattr(made.services, "unreachable", None)
        problem = unreachable() if unreachable is not None else None
        if problem is not None:
            raise CouldNotError(f"{problem}. {otherwise}")
        try:
            return log_lines(made.services, service, LINES)
        except NoLogError as error:
            raise CouldNotError(f"{error}. {otherwise}") from error


@app.command()
def images(*, as_json: Json = False) -> None:
    """The table of checked images: how each chooses its device."""
    from voxint.services.placement.images import CHECKED_IMAGES  # noqa: PLC0415

    if as_json:
        say_json(
            [
                {
                    "image": row.reference,
                    "version": row.version,
                    "service": row.service,
                    "tier": row.tier,
                    "choice": row.choice.value,
                    "how": row.how,
                    "seed": row.seed,
                    "python": row.python,
                    "providers": list(row.providers),
                    "checked_on": row.checked_on.isoformat() if row.checked_on else None,
                }
                for row in CHECKED_IMAGES
            ]
        )
        return
    say_table(
        ("service", "tier", "choice", "seed", "python", "checked", "image"),
        [
            (
                row.service,
                row.tier,
                row.choice.value,
                "-" if row.seed is None else str(row.seed),
                row.python or "-",
                row.checked_on.isoformat() if row.checked and row.checked_on else "not checked",
                row.reference,
            )
            for row in CHECKED_IMAGES
        ],
    )


app.command()(probe)
