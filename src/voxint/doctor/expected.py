"""PURE: is what does not answer off on purpose? The one rule, for model services and language-model endpoints.

Only what looks stopped can be: the connection was refused, or the host name did not resolve. And only while the phase
task runs and the phase is one in which it should be stopped. Everything else that is wrong is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.model import VOXINT_HAS_GPU, Phase

if TYPE_CHECKING:
    from voxint.gpu_phase.view import PhaseView

SILENCED_BY = "gpu sharing"


class Side(StrEnum):
    """Whose turn keeps the other side stopped."""

    SERVICE = "service"
    LANGUAGE_MODEL = "language model"


@dataclass(frozen=True, slots=True)
class Probe:
    """What asking one address brought. `looks_stopped`: refused, or no such name; never for any other failure."""

    ready: bool
    looks_stopped: bool
    detail: str


STOPPED_IN = {
    Side.SERVICE: frozenset(Phase) - {Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING},
    Side.LANGUAGE_MODEL: VOXINT_HAS_GPU,
}
"""The phases in which each side should be stopped."""


def off_because(side: Side, view: PhaseView | None) -> str | None:
    """Why that side should be stopped now, in words; None where it should not, or where nobody saw to it."""
    if view is None or view.state is None or not view.task_running or view.state.phase not in STOPPED_IN[side]:
        return None
    if side is Side.LANGUAGE_MODEL:
        return f"stopped while Voxint holds the GPU (phase {view.state.phase.value})"
    return f"stopped by GPU sharing until the next audio window (phase {view.state.phase.value})"


def finding(code: str, side: Side, probe: Probe, view: PhaseView | None) -> Finding:
    """The finding for one model service or language-model endpoint.

    Args:
        code: the check's name.
        side: which of the two it is.
        probe: what asking it brought.
        view: the phase; None where it could not be read.
    """
    reason = off_because(side, view)
    if probe.ready:
        return _ready(code, side, probe, view, reason)
    if probe.looks_stopped and reason is not None:
        return Finding(code, Severity.OFF, f"{reason}: {probe.detail}", SILENCED_BY)
    if probe.looks_stopped and side is Side.SERVICE and _starting(view):
        return Finding(code, Severity.WARN, f"not up yet (phase starting_services): {probe.detail}")
    return Finding(code, Severity.FAIL, probe.detail + _hint(probe, view))


def _ready(code: str, side: Side, probe: Probe, view: PhaseView | None, reason: str | None) -> Finding:
    late = Phase.STOPPING_SERVICES, Phase.RELEASING, Phase.ACQUIRING
    if reason is None or (view is not None and view.phase in late):
        return Finding(code, Severity.OK, probe.detail)
    if side is Side.SERVICE:
        return Finding(code, Severity.WARN, f"{probe.detail}, but should be stopped: the next tick stops it")
    return Finding(code, Severity.WARN, f"{probe.detail}, but should be stopped: somebody started it beside the audio")


def _starting(view: PhaseView | None) -> bool:
    return view is not None and view.task_running and view.phase is Phase.STARTING_SERVICES


def _hint(probe: Probe, view: PhaseView | None) -> str:
    if not probe.looks_stopped or view is None or not view.enabled or view.task_running:
        return ""
    if view.state is None:
        return ". No phase is recorded yet, so nobody stopped it on purpose"
    return ". The GPU sharing task does not run, so nobody stopped it on purpose"
