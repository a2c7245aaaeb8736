"""The checks, in the order in which they are printed. They run at the same time, each within its own limit.

A check is a function of the surroundings that gives findings and does not raise; one that raises all the same, or takes
too long, becomes a finding itself: doctor always comes to an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from voxint.db.trouble import place, words
from voxint.doctor import gpu, host, placement, servers, weights, workers
from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.reasons import clean
from voxint.gpu_phase.status import look
from voxint.services.parallel import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from voxint.gpu_phase.view import PhaseView
    from voxint.settings import SettingsError
    from voxint.wiring import Parts

LIMIT_SECONDS = 20.0
"""For all checks together."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the checks look at: the parts, and the phase where it could be read."""

    parts: Parts
    view: PhaseView | None
    database_problem: str | None


CHECKS: tuple[tuple[str, Callable[[Surroundings], list[Finding]]], ...] = (
    ("database", servers.database),
    ("redis", servers.redis),
    ("workers", workers.workers),
    ("beat", workers.beat),
    ("docker socket", host.docker),
    ("model services", gpu.model_services),
    ("llm endpoints", gpu.llm_endpoints),
    ("media folder", host.media_folder),
    ("weights", weights.weights),
    ("gpu sharing", gpu.sharing),
    ("broker", gpu.broker),
    ("placement", placement.placement),
)
"""What is looked at, in the order in which it is printed; docs/reference/doctor.md has each with its test."""


def run_checks(parts: Parts) -> list[Finding]:
    """All findings, in order."""
    around = surroundings(parts)
    checks = {name: partial(check, around) for name, check in CHECKS}
    found = [Finding("settings", Severity.OK, host.settings_words(parts.settings)), *host.dwell(around)]
    for name, result in at_once(checks, LIMIT_SECONDS).items():
        found += [_broken(name, result)] if isinstance(result, Exception) else result
    return placement.beside_services(found)


def surroundings(parts: Parts) -> Surroundings:
    """Read the phase once, for all checks."""
    try:
        return Surroundings(parts, look(parts.phase_store, parts.settings), None)
    except SQLAlchemyError as error:
        return Surroundings(parts, None, words(error, place(parts.settings)))


def refused_settings(error: SettingsError) -> list[Finding]:
    """The findings where the settings themselves cannot be used: nothing else can be checked."""
    return [Finding("settings", Severity.FAIL, problem) for problem in error.problems]


def _broken(name: str, error: Exception) -> Finding:
    if isinstance(error, TimeoutError):
        return Finding(name, Severity.FAIL, f"could not be checked: {clean(str(error))}")
    return Finding(name, Severity.FAIL, f"could not be checked: {type(error).__name__}: {clean(str(error))}")


def severities(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings of each severity there are."""
    counted = dict.fromkeys(Severity, 0)
    for finding in findings:
        counted[finding.severity] += 1
    return counted
