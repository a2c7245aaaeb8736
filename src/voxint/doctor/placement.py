"""Check: whether each model service works on the device that it should work on. The words are placement's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from voxint.doctor.card_groups import card_groups
from voxint.doctor.finding import Finding, Severity
from voxint.services.placement.judge import Verdict
from voxint.services.placement.tables import row_words
from voxint.services.placement.view import rows

if TYPE_CHECKING:
    from voxint.doctor.checks import Surroundings
    from voxint.services.placement.view import Row
    from voxint.settings import Settings

_NAME = "placement"


def placement(around: Surroundings) -> list[Finding]:
    """A line a service of which anything is expected. A wrong device is a warning: recordings are still done."""
    settings = around.parts.settings
    if settings.gpu_placement_action == "off":
        return [Finding(_NAME, Severity.OFF, "not looked at: GPU_PLACEMENT_ACTION=off")]
    try:
        stored = around.parts.placement_store.placed()
    except SQLAlchemyError:  # the database has a line of its own
        stored = {}
    found = [row for row in rows(settings, stored, around.parts.placement_sources) if row.expects]
    if not found:
        text = f"nothing is expected of any service (COMPUTE_TIER={settings.compute_tier})"
        return [Finding(_NAME, Severity.OFF, text)]
    return [_finding(row, settings) for row in found]


def _finding(row: Row, settings: Settings) -> Finding:
    hint = card_groups(settings, row.service) if row.verdict is Verdict.WRONG else ""
    device = row.device if row.live else None
    return Finding(f"{_NAME} {row.service}", _severity(row), row_words(row) + hint, runs_on=device)


def beside_services(found: list[Finding]) -> list[Finding]:
    """The same findings, with the device beside each service's own line too."""
    devices = {finding.code.removeprefix(f"{_NAME} "): finding.runs_on for finding in found if finding.runs_on}
    return [
        replace(finding, runs_on=devices.get(finding.code.removeprefix("service "), finding.runs_on))
        if finding.code.startswith("service ")
        else finding
        for finding in found
    ]


def _severity(row: Row) -> Severity:
    if row.verdict in {Verdict.WRONG, Verdict.SLOW}:
        return Severity.WARN
    return Severity.OK if row.live else Severity.OFF
