"""PURE: what a check found, as data. Command line, Status page and banner lay the same findings out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How bad it is. `off` is expected, and harmless."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do about it."""

    code: str
    """The check's name, as it is printed: `database`, `gpu sharing`, `service whisper`."""
    severity: Severity
    text: str
    silenced_by: str | None = None
    """Why a fault does not count: what is off is off on purpose, and this says whose."""
    runs_on: str | None = None
    """The device that a model service works on just now, where that can be known."""


def failed(findings: Iterable[Finding]) -> bool:
    """Whether doctor must say no."""
    return any(finding.severity is Severity.FAIL for finding in findings)


def document(findings: Iterable[Finding]) -> dict[str, object]:
    """The object that `doctor --json` prints."""
    listed = list(findings)
    return {
        "ok": not failed(listed),
        "checks": [
            {
                "name": finding.code,
                "severity": finding.severity.value,
                "text": finding.text,
                "silenced_by": finding.silenced_by,
                "runs_on": finding.runs_on,
            }
            for finding in listed
        ],
    }
