"""`voxint doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from voxint.cli.environment import parts
from voxint.cli.output import say, say_json


def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check everything that Voxint needs. Exit status 1 where a check fails."""
    from voxint.doctor.checks import refused_settings, run_checks  # noqa: PLC0415
    from voxint.doctor.finding import document, failed  # noqa: PLC0415
    from voxint.settings import SettingsError  # noqa: PLC0415

    try:
        with parts() as made:
            findings = run_checks(made)
    except SettingsError as error:
        findings = refused_settings(error)
    if as_json:
        say_json(document(findings))
    else:
        width = max(len(finding.code) for finding in findings)
        for finding in findings:
            say(f"[{finding.severity:<4}] {finding.code:<{width}}  {finding.text}", finding.severity)
    if failed(findings):
        raise typer.Exit(1)
