"""One tick: load, plan, perform, observe, decide, save. What to announce is in the report; the caller does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

from voxint.gpu_phase import lanes
from voxint.gpu_phase.decide import decide
from voxint.gpu_phase.model import Cause, Lane, Phase, PhaseState, Transition
from voxint.gpu_phase.plan import Call, Seen, may, plan

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.gpu_phase.model import ServiceSeen
    from voxint.gpu_phase.policy import Policy
    from voxint.gpu_phase.ports import Broker, LanguageModel, Placement, Services
    from voxint.gpu_phase.store import PhaseStore


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that a tick works with."""

    store: PhaseStore
    broker: Broker
    services: Services
    language_model: LanguageModel
    policy: Policy
    placement: Placement | None = None
    """None where nobody looks at the devices of the services."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a tick did. `state` is what is stored now, as far as this tick knows."""

    outcome: str
    """`saved`, `first`, `busy` (another tick is at work) or `overtaken` (the row changed under this one)."""
    took_seconds: float
    now: datetime | None = None
    state: PhaseState | None = None
    transition: Transition | None = None
    calls: tuple[Call, ...] = ()
    opened: tuple[Lane, ...] = ()
    """Lanes that are open at the end of this tick."""

    @property
    def moved(self) -> bool:
        """Whether the phase changed."""
        return self.outcome == "first" or (
            self.outcome == "saved" and self.transition is not None and self.transition.moved
        )


def tick(machine: Machine) -> Report:
    """Make one tick, and at most one step. Never two at a time."""
    started = monotonic()
    with machine.store.sole_tick() as sole:
        if not sole:
            return Report("busy", monotonic() - started)
        report = _tick(machine)
    return replace(report, took_seconds=monotonic() - started)


def _tick(machine: Machine) -> Report:
    loaded = machine.store.load()
    if loaded.stored is None:
        event = machine.store.begin()
        state = PhaseState(Phase.LLM, loaded.now) if event else None
        return Report("first" if event else "overtaken", 0, loaded.now, state)
    state = loaded.stored.state.not_ahead_of(loaded.now)
    calls = plan(state, loaded.request)
    seen = Seen(loaded.now, loaded.work, request=loaded.request, hold_until=loaded.hold_until)
    seen = perform(calls, state, seen, machine)
    transition = decide(state, seen, machine.policy)
    if not machine.store.save(loaded.stored, transition, loaded.request):
        return Report("overtaken", 0, loaded.now, state, transition, calls)
    after = transition.state
    opened = tuple(lane for lane in Lane if lanes.is_open(lane, after, loaded.now, machine.policy))
    return Report("saved", 0, loaded.now, after, transition, calls, opened)


def perform(calls: tuple[Call, ...], state: PhaseState, seen: Seen, machine: Machine) -> Seen:
    """Make the planned calls, in order, as long as what was seen before allows each. No transaction is open."""
    problems: dict[str, str] = {}
    for call in calls:
        if may(call, seen):
            seen, problems = _perform(call, state, seen, machine, problems)
    return seen


def _perform(  # noqa: C901 - one line a call
    call: Call, state: PhaseState, seen: Seen, machine: Machine, problems: dict[str, str]
) -> tuple[Seen, dict[str, str]]:
    lease = state.lease_id or ""
    ttl = machine.policy.ttl
    match call:
        case Call.PROBE_LLM:
            seen = replace(seen, llm=machine.language_model.probe(state.phase_since))
        case Call.INSPECT:
            seen = replace(seen, services=machine.services.inspect())
        case Call.STATUS:
            seen = replace(seen, status=machine.broker.status(seen.now))
        case Call.ACQUIRE:
            seen = replace(seen, acquire=machine.broker.acquire(seen.now, ttl))
        case Call.RENEW:
            seen = replace(seen, renewal=machine.broker.renew(lease, seen.now, ttl))
        case Call.RELEASE:
            seen = replace(seen, release=machine.broker.release(lease))
        case Call.START:
            problems = machine.services.start()
        case Call.HEALTH:
            seen = replace(seen, services=_named(machine.services.health(), problems))
        case Call.PLACEMENT:
            seen = replace(seen, services=_placed(machine, seen, state))
        case Call.STOP:
            machine.services.stop()
    return seen, problems


def _named(looked: tuple[ServiceSeen, ...], problems: dict[str, str]) -> tuple[ServiceSeen, ...]:
    """Why a start failed says more than that nothing answers."""
    return tuple(
        replace(one, detail=problems[one.name]) if one.name in problems and not one.healthy else one for one in looked
    )


def _placed(machine: Machine, seen: Seen, state: PhaseState) -> tuple[ServiceSeen, ...] | None:
    if machine.placement is None or seen.services is None:
        return seen.services
    return machine.placement.look(seen.services, state)


def canonical(report: Report) -> dict[str, object]:
    """The one line that tells a tick, as values."""
    line: dict[str, object] = {"outcome": report.outcome}
    if report.transition is not None:
        before, after = report.transition.before, report.transition.state
        line["phase"] = before.phase.value
        line["calls"] = ",".join(report.calls)
        line["cause"] = report.transition.cause.value
        if report.moved:
            line["moved_to"] = after.phase.value
        if report.transition.request is not None:
            line["request"] = report.transition.request.value
        if after.failures > before.failures:
            line["failed"] = after.last_error
        elif after.note:
            line["note"] = after.note
    elif report.outcome == "first":
        line["cause"] = Cause.FIRST_TICK.value
        line["moved_to"] = Phase.LLM.value
    line["took_ms"] = round(report.took_seconds * 1000)
    return line
