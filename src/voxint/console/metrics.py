"""The phase, its history and the ticks as Prometheus reads them: values in, text out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.totals import FAILURES
from voxint.gpu_phase.view import NO_PHASE
from voxint.gpu_phase.wording.notices import Level, notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxint.gpu_phase.totals import Steps
    from voxint.gpu_phase.view import PhaseView
    from voxint.work.meter import TickCounts

    Samples = tuple[tuple[Mapping[str, str], float], ...]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ALERT_CODES = ("error", "task_stopped", "llm_overdue", "leftover")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, kind and sentence, and its samples with their labels."""

    name: str
    kind: str
    words: str
    samples: Samples


def families(view: PhaseView, steps: Sequence[Steps], ticks: TickCounts | None) -> list[Family]:
    """All metrics. `ticks` is None where Redis could not be asked."""
    found = [
        _one("voxint_gpu_phase_enabled", "gauge", "Whether GPU sharing is on.", view.enabled),
        Family("voxint_gpu_phase", "gauge", "1 for the phase that is stored now.", _phase(view)),
        Family("voxint_gpu_phase_seconds_total", "counter", "Seconds spent in each phase.", _seconds(view, steps)),
        Family("voxint_gpu_phase_switches_total", "counter", "Changes of phase, by cause.", _switches(steps)),
        _one("voxint_gpu_phase_failed_steps_total", "counter", "Steps that were failures.", _failed(steps)),
        _one("voxint_gpu_phase_failures", "gauge", "Failures in a row.", view.state.failures if view.state else 0),
        _one("voxint_gpu_phase_task_running", "gauge", "Whether the phase task runs.", view.task_running),
        _one(
            "voxint_gpu_phase_blind",
            "gauge",
            "Whether something could not be asked, so that no switch begins.",
            view.blind is not None,
        ),
        Family("voxint_lane_open", "gauge", "Whether work may begin in a lane.", _lanes(view, "open")),
        Family("voxint_lane_waiting", "gauge", "Pieces of work that wait.", _lanes(view, "waiting")),
        Family("voxint_lane_running", "gauge", "Pieces of work that run.", _lanes(view, "running")),
        Family("voxint_alert_active", "gauge", "1 for an alert that holds now.", _alerts(view)),
    ]
    if view.ticked_at is not None:
        age = max((view.now - view.ticked_at).total_seconds(), 0.0)
        found.append(_one("voxint_gpu_phase_tick_age_seconds", "gauge", "Seconds since the last tick.", age))
    if ticks is not None:
        found += _ticks(ticks)
    return found


def render(found: Iterable[Family]) -> str:
    """The text of the exposition format."""
    lines: list[str] = []
    for family in found:
        lines += [f"# HELP {family.name} {family.words}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _one(name: str, kind: str, words: str, value: float) -> Family:
    return Family(name, kind, words, (({}, float(value)),))


def _phase(view: PhaseView) -> Samples:
    names = [NO_PHASE, *(phase.value for phase in Phase)]
    return tuple(({"phase": name}, float(name == view.phase_name)) for name in names)


def _seconds(view: PhaseView, steps: Sequence[Steps]) -> Samples:
    spent = dict.fromkeys((phase.value for phase in Phase), 0.0)
    for step in steps:
        spent[step.from_phase] = spent.get(step.from_phase, 0.0) + step.seconds
    if view.state is not None:
        spent[view.state.phase.value] += max(view.state.age(view.now).total_seconds(), 0.0)
    return tuple(({"phase": name}, seconds) for name, seconds in spent.items())


def _switches(steps: Sequence[Steps]) -> Samples:
    return tuple(
        ({"from": step.from_phase, "to": step.to_phase, "cause": step.cause}, float(step.times)) for step in steps
    )


def _failed(steps: Sequence[Steps]) -> int:
    return sum(step.times for step in steps if step.cause in {cause.value for cause in FAILURES})


def _lanes(view: PhaseView, field: str) -> Samples:
    return (
        ({"lane": "gpu"}, float(getattr(view.gpu_lane, field))),
        ({"lane": "post"}, float(getattr(view.post_lane, field))),
    )


def _alerts(view: PhaseView) -> Samples:
    active = {notice.code for notice in notices(view, None) if notice.level is Level.ALERT}
    return tuple(({"code": code}, float(code in active)) for code in ALERT_CODES)


def _ticks(ticks: TickCounts) -> list[Family]:
    outcomes = tuple(({"outcome": name}, float(times)) for name, times in ticks.by_outcome.items())
    found = [
        Family("voxint_gpu_phase_ticks_total", "counter", "Ticks, by what became of them.", outcomes),
        _one("voxint_gpu_phase_tick_seconds_total", "counter", "Seconds that all ticks took.", ticks.seconds),
    ]
    if ticks.last_seconds is not None:
        found.append(
            _one("voxint_gpu_phase_last_tick_seconds", "gauge", "Seconds that the last tick took.", ticks.last_seconds)
        )
    return found


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + pairs + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.6f}".rstrip("0")
