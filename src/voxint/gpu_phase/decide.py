"""The decision of a tick: the stored state and what was seen in, the next state and its cause out.

One small function a phase. Within each, the exits stand in order of precedence; the first that applies is taken.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase import reasons
from voxint.gpu_phase.model import (
    HOLDER,
    VOXINT_HAS_GPU,
    Cause,
    Condition,
    Cut,
    Lane,
    Phase,
    PhaseState,
    RequestKind,
    RequestOutcome,
    Transition,
)
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.plan import all_stopped, release_asked
from voxint.gpu_phase.policy import backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.gpu_phase.model import ServiceSeen
    from voxint.gpu_phase.plan import Seen
    from voxint.gpu_phase.policy import Policy

FAR_FUTURE = datetime(9999, 1, 1, tzinfo=UTC)
"""The latest moment that is stored: a broker may ask for any wait, a timestamp cannot hold every one."""


def decide(state: PhaseState, seen: Seen, policy: Policy) -> Transition:
    """Turn one tick's observations into a transition.

    Args:
        state: the row as it was read at the start of the tick.
        seen: what the calls of `plan` for this state brought.
        policy: the operator's numbers.
    """
    transition = _BY_PHASE[state.phase](state, seen, policy)
    if _asked(seen, RequestKind.AUDIO_NOW) and _still_on_course(transition):
        return replace(transition, request=RequestOutcome.MET)
    return transition


def _still_on_course(transition: Transition) -> bool:
    """Whether `audio-now` asks for what is happening anyway. Where the way to audio ends early, it stays pending."""
    return transition.before.phase in _TO_AUDIO and transition.state.phase in _TO_AUDIO | {Phase.DRAINING}


# --- llm: the other service has the GPU ---------------------------------------------------------------------------


def _llm(state: PhaseState, seen: Seen, policy: Policy) -> Transition:
    probed = replace(
        state,
        llm_ready=seen.llm is not None and seen.llm.ready,
        llm_checked_at=seen.now,
        note=reasons.in_llm(seen),
    )
    if running(seen.services):
        return _adopt(state, seen, Cause.SERVICE_RUNS)
    if _our_lease(seen) is not None:
        return _adopt(state, seen, Cause.LEASE_FOUND)
    if release_asked(seen.request):
        return _hold_off(state, probed, seen, policy)
    if reasons.blind(seen) is not None:
        return Transition(state, probed, Cause.UNKNOWN)
    if _asked(seen, RequestKind.AUDIO_NOW):
        return _begin_switch(state, seen, Cause.AUDIO_NOW, RequestOutcome.ACTED)
    if seen.work.gpu_queued:
        if _may_switch(state, seen, policy):
            return _begin_switch(state, seen, Cause.WORK_WAITS, None)
        return Transition(state, probed, Cause.HELD_OFF)
    return Transition(state, probed, Cause.IDLE)


def _adopt(state: PhaseState, seen: Seen, cause: Cause) -> Transition:
    """A crash, or a person, left something that must be taken down first. It is no failure of ours."""
    lease = _our_lease(seen)
    held = replace(_holding(state, lease) if lease else state, cycle_failed=state.failures > 0)
    return _move(state, held, Phase.STOPPING_SERVICES, cause, seen, note=reasons.found(seen.services, lease))


def _hold_off(before: PhaseState, state: PhaseState, seen: Seen, policy: Policy) -> Transition:
    """A release in llm keeps the next switch away for min dwell; one made before llm was reached is already met."""
    if _met_by_the_way_back(seen):
        return Transition(before, state, Cause.IDLE, RequestOutcome.MET)
    return Transition(before, _held_off(state, seen.now, policy), Cause.HELD_OFF, RequestOutcome.ACTED)


def _held_off(state: PhaseState, now: datetime, policy: Policy) -> PhaseState:
    return replace(state, retry_after=later(state.retry_after, add(now, policy.min_dwell)))


def _may_switch(state: PhaseState, seen: Seen, policy: Policy) -> bool:
    held_off = backing_off(state, seen) or on_hold(seen) or not in_window(seen, policy)
    return dwelt(state, seen, policy) and not held_off


def dwelt(state: PhaseState, seen: Seen, policy: Policy) -> bool:
    """Whether the phase has lasted for min dwell."""
    return state.age(seen.now) >= policy.min_dwell


def backing_off(state: PhaseState, seen: Seen) -> bool:
    """Whether a failure or a release still keeps the next switch away."""
    return state.retry_after is not None and seen.now < state.retry_after


def on_hold(seen: Seen) -> bool:
    """Whether an operator's hold is in force."""
    return seen.hold_until is not None and seen.now < seen.hold_until


def in_window(seen: Seen, policy: Policy) -> bool:
    """Whether the hour lets a switch begin. With less than min dwell left it would only trade the GPU back and forth."""
    closes_at = policy.windows.closes_at(seen.now)
    room = closes_at is None or closes_at - seen.now >= policy.min_dwell
    return policy.windows.open_at(seen.now) and room


def window_closed(state: PhaseState, seen: Seen, policy: Policy) -> bool:
    """Whether the hours in which this phase began are over. One that an operator began outside them has no such end."""
    return policy.windows.open_at(state.phase_since) and not policy.windows.open_at(seen.now)


def _begin_switch(state: PhaseState, seen: Seen, cause: Cause, request: RequestOutcome | None) -> Transition:
    fresh = replace(state, last_error=None, cycle_failed=False)
    return _move(state, fresh, Phase.DRAINING_POST, cause, seen, request=request)


# --- draining_post: the language model's work in progress ends ----------------------------------------------------


def _draining_post(state: PhaseState, seen: Seen, policy: Policy) -> Transition:
    if running(seen.services):
        return _adopt(state, seen, Cause.SERVICE_RUNS)
    if release_asked(seen.request):
        back = _held_off(state, seen.now, policy)
        return _move(state, back, Phase.LLM, Cause.RELEASE_ASKED, seen, request=RequestOutcome.ACTED)
    if not seen.work.post_in_progress:
        drained = _move(state, state, Phase.ACQUIRING, Cause.POST_DRAINED, seen)
        return replace(drained, drained=Lane.POST)
    return _stay(state, Cause.WORKING)


# --- acquiring: the broker makes room -----------------------------------------------------------------------------


def _acquiring(state: PhaseState, seen: Seen, policy: Policy) -> Transition:
    if release_asked(seen.request):
        return _move(state, state, Phase.RELEASING, Cause.RELEASE_ASKED, seen, request=RequestOutcome.ACTED)
    if running(seen.services):
        return _adopt(state, seen, Cause.SERVICE_RUNS)
    late = state.age(seen.now) >= policy.acquire_limit
    match seen.acquire:
        case Granted() as grant:
            return _move(
                state, _holding(state, grant), Phase.STARTING_SERVICES, Cause.GRANTED, seen, note=grant.warning
            )
        case Refused(holder=holder) as refusal if holder != HOLDER:
            failed = fail(state, reasons.refused(refusal), seen.now, at_least=refusal.retry_after)
            return _move(state, failed, Phase.LLM, Cause.REFUSED, seen, note=refusal.warning)
        case Refused():
            return _acquire_failed(state, seen, reasons.REFUSED_NAMING_US)
        case Failed(reason):
            return _acquire_failed(state, seen, reasons.acquire_failed(reason))
        case _ if late:
            failed = fail(state, reasons.acquire_limit(policy, seen), seen.now)
            return _move(state, failed, Phase.RELEASING, Cause.ACQUIRE_LIMIT, seen)
        case Pending():
            return _stay(state, Cause.WAITING)
        case None:  # the services could not be inspected, so the broker was not asked
            return _stay(state, Cause.UNKNOWN, note=reasons.blind(seen))


def _acquire_failed(state: PhaseState, seen: Seen, reason: str) -> Transition:
    """The broker may have granted all the same: the way back goes through releasing, which asks it."""
    return _move(state, fail(state, reason, seen.now), Phase.RELEASING, Cause.ACQUIRE_FAILED, seen)


# --- starting_services --------------------------------------------------------------------------------------------


def _starting_services(before: PhaseState, seen: Seen, policy: Policy) -> Transition:
    state = _renew(before, seen)
    if state.lease_lost:
        return _lease_lost(before, state, seen)
    if release_asked(seen.request):
        return _move(before, state, Phase.STOPPING_SERVICES, Cause.RELEASE_ASKED, seen, request=RequestOutcome.ACTED)
    if _barred(seen.services):
        failed = fail(state, reasons.wrong_device(_barred(seen.services)), seen.now)
        return _move(before, failed, Phase.STOPPING_SERVICES, Cause.WRONG_DEVICE, seen)
    if _all_healthy(seen.services):
        note = reasons.placement(seen.services)
        return _move(before, state, Phase.AUDIO, Cause.SERVICES_HEALTHY, seen, note=note)
    if state.age(seen.now) >= policy.start_limit:
        failed = fail(state, reasons.start_limit(policy, seen.services), seen.now)
        return _move(before, failed, Phase.STOPPING_SERVICES, Cause.START_LIMIT, seen)
    return _stay(before, Cause.WAITING, state=state, note=reasons.not_started(seen))


def _barred(services: tuple[ServiceSeen, ...] | None) -> tuple[ServiceSeen, ...]:
    return tuple(service for service in services or () if service.barred)


def _all_healthy(services: tuple[ServiceSeen, ...] | None) -> bool:
    return services is not None and all(service.healthy for service in services)


# --- audio and draining: voxint has the GPU -----------------------------------------------------------------------


def _audio(before: PhaseState, seen: Seen, policy: Policy) -> Transition:
    state = _renew(before, seen)
    if state.lease_lost:
        return _lease_lost(before, state, seen)
    if _stopped(seen.services):
        return _service_stopped(before, state, seen)
    if release_asked(seen.request):
        return _move(before, state, Phase.DRAINING, Cause.RELEASE_ASKED, seen, request=RequestOutcome.ACTED)
    if state.age(seen.now) >= policy.max_audio:
        return _move(before, state, Phase.DRAINING, Cause.MAX_AUDIO, seen)
    if window_closed(state, seen, policy):
        return _move(before, state, Phase.DRAINING, Cause.WINDOW_CLOSED, seen)
    if not (seen.work.gpu_queued or seen.work.gpu_in_progress) and dwelt(state, seen, policy):
        return _move(before, state, Phase.DRAINING, Cause.QUEUE_EMPTY, seen)
    return _stay(before, Cause.WORKING, state=state, note=reasons.trouble(seen))


def _draining(before: PhaseState, seen: Seen, _policy: Policy) -> Transition:
    state = _renew(before, seen)
    if state.lease_lost:
        return _lease_lost(before, state, seen)
    if _stopped(seen.services):
        return _service_stopped(before, state, seen)
    if _forces_the_drain(seen):
        forced = _move(before, state, Phase.STOPPING_SERVICES, Cause.RELEASE_FORCED, seen, request=RequestOutcome.ACTED)
        return replace(forced, cut=Cut())
    met = RequestOutcome.MET if release_asked(seen.request) else None
    if not seen.work.gpu_in_progress:
        drained = _move(before, state, Phase.STOPPING_SERVICES, Cause.DRAINED, seen, request=met)
        return replace(drained, drained=Lane.GPU)
    return _stay(before, Cause.WORKING, state=state, note=reasons.trouble(seen), request=met)


def _lease_lost(before: PhaseState, state: PhaseState, seen: Seen) -> Transition:
    failed = fail(state, reasons.lease_lost(seen), seen.now)
    return replace(_move(before, failed, Phase.STOPPING_SERVICES, Cause.LEASE_LOST, seen), cut=Cut())


def _service_stopped(before: PhaseState, state: PhaseState, seen: Seen) -> Transition:
    gone = _stopped(seen.services)
    failed = fail(state, reasons.service_stopped(gone), seen.now)
    cut = Cut(frozenset(service.name for service in gone))
    return replace(_move(before, failed, Phase.STOPPING_SERVICES, Cause.SERVICE_STOPPED, seen), cut=cut)


# --- stopping_services, releasing, error: the way back ------------------------------------------------------------


def _stopping_services(before: PhaseState, seen: Seen, policy: Policy) -> Transition:
    state = _renew(before, seen)
    if all_stopped(seen.services):
        return _move(before, state, Phase.RELEASING, Cause.SERVICES_STOPPED, seen)
    if state.age(seen.now) >= policy.stop_limit:
        failed = fail(state, reasons.stop_limit(policy, seen.services), seen.now)
        return _move(before, failed, Phase.ERROR, Cause.STOP_LIMIT, seen)
    return _stay(before, Cause.WAITING, state=state, note=reasons.not_stopped(seen))


def _releasing(before: PhaseState, seen: Seen, policy: Policy) -> Transition:
    lease = _our_lease(seen)
    state = _holding(before, lease) if lease else before
    if running(seen.services):
        note = reasons.found(seen.services)
        return _move(before, state, Phase.STOPPING_SERVICES, Cause.SERVICE_RUNS, seen, note=note)
    late = state.age(seen.now) >= policy.release_limit
    if not all_stopped(seen.services):
        if late:
            reason = reasons.not_confirmed(policy, seen.services)
            return _release_failed(before, state, seen, reason, Cause.RELEASE_LIMIT)
        return _stay(before, Cause.UNKNOWN, state=state, note=reasons.blind(seen))
    if lease is not None:
        return _stay(before, Cause.LEASE_LEARNED, state=state)
    if state.lease_id is None:
        return _nothing_known(state, seen)
    return _released(state, seen, policy, late=late)


def _released(state: PhaseState, seen: Seen, policy: Policy, *, late: bool) -> Transition:
    match seen.release:
        case Done():
            return _home(state, seen, Cause.RELEASED)
        case Pending() if not late:
            return _stay(state, Cause.WAITING)
        case Pending():
            return _release_failed(state, state, seen, reasons.release_limit(policy), Cause.RELEASE_LIMIT)
        case Failed(reason):
            return _release_failed(state, state, seen, reasons.release_failed(reason), Cause.RELEASE_FAILED)
        case None:
            return _release_failed(state, state, seen, reasons.release_failed("no answer"), Cause.RELEASE_FAILED)


def _nothing_known(state: PhaseState, seen: Seen) -> Transition:
    """No id is known, and the broker does not name one: either nothing is held, or nobody can say."""
    match seen.status:
        case Free():
            return _home(state, seen, Cause.NOTHING_HELD)
        case Held(holder=holder) if holder != HOLDER:
            return _home(state, seen, Cause.NOTHING_HELD, note=reasons.held_by_another(holder))
        case _:
            reason = reasons.status_unknown(seen.status)
            known = state if state.cycle_failed else fail(state, reason, seen.now)
            return _home(state, seen, Cause.STATUS_UNKNOWN, state=known, note=reason)


def _home(
    before: PhaseState, seen: Seen, cause: Cause, *, state: PhaseState | None = None, note: str | None = None
) -> Transition:
    """Back in llm. A cycle without a failed step forgets the failures before it; a failed one keeps them."""
    state = state or before
    if not state.cycle_failed:
        state = replace(state, failures=0, retry_after=None)
    met = RequestOutcome.MET if _met_by_the_way_back(seen) else None
    return _move(before, state, Phase.LLM, cause, seen, note=note, request=met)


def _release_failed(before: PhaseState, state: PhaseState, seen: Seen, reason: str, cause: Cause) -> Transition:
    return _move(before, fail(state, reason, seen.now), Phase.ERROR, cause, seen)


def _error(before: PhaseState, seen: Seen, _policy: Policy) -> Transition:
    state = _renew(before, seen)
    if release_asked(seen.request):
        return _move(before, state, Phase.STOPPING_SERVICES, Cause.RELEASE_ASKED, seen, request=RequestOutcome.ACTED)
    if not backing_off(state, seen):
        return _move(before, state, Phase.STOPPING_SERVICES, Cause.RETRY, seen)
    return _stay(before, Cause.WAITING, state=state, note=reasons.not_stopped(seen))


# --- the parts that the phases share ------------------------------------------------------------------------------

_TO_AUDIO = frozenset({Phase.DRAINING_POST, Phase.ACQUIRING, Phase.STARTING_SERVICES, Phase.AUDIO})
_HAS_OR_OWES_GPU = VOXINT_HAS_GPU | {Phase.ERROR}


def _move(
    before: PhaseState,
    state: PhaseState,
    phase: Phase,
    cause: Cause,
    seen: Seen,
    *,
    note: str | None = None,
    request: RequestOutcome | None = None,
) -> Transition:
    """A step. Entering llm gives the lease up; every step stores that the language model was not asked since."""
    if phase is Phase.LLM:
        state = replace(state, lease_id=None, lease_expires_at=None, lease_lost=False)
    words = reasons.clean(note) if note else None
    after = replace(state, phase=phase, phase_since=seen.now, llm_ready=False, llm_checked_at=None, note=words)
    return Transition(before, after, cause, request)


def _stay(
    before: PhaseState,
    cause: Cause,
    *,
    state: PhaseState | None = None,
    note: str | None = None,
    request: RequestOutcome | None = None,
) -> Transition:
    return Transition(before, replace(state or before, llm_ready=False, note=note), cause, request)


def fail(state: PhaseState, reason: str, now: datetime, at_least: timedelta | None = None) -> PhaseState:
    """Count a failure: its reason, one more, and the longer of the backoff and what a refusal asks for."""
    failures = state.failures + 1
    wait = max(backoff(failures), at_least or timedelta(0))
    return replace(
        state,
        last_error=reasons.clean(reason),
        failures=failures,
        retry_after=add(now, wait),
        cycle_failed=True,
    )


def _renew(state: PhaseState, seen: Seen) -> PhaseState:
    """The lease after this tick's renewal: extended, marked as lost, or as it was."""
    match seen.renewal:
        case Granted() as grant:
            state = _holding(state, grant)
        case Lost():
            return replace(state, lease_lost=True)
        case Failed(reason):
            if not state.cycle_failed:  # what made the cycle fail stays to be seen
                state = replace(state, last_error=reasons.clean(reasons.renewal_failed(reason)))
        case None:
            pass
    if _expired(state, seen.now):
        return replace(state, lease_lost=True)
    return state


def _expired(state: PhaseState, now: datetime) -> bool:
    return state.lease_id is not None and state.lease_expires_at is not None and now >= state.lease_expires_at


def _holding(state: PhaseState, lease: Granted | Held) -> PhaseState:
    """The broker says that this lease is ours: it is stored, whatever was known before."""
    return replace(state, lease_id=lease.lease_id, lease_expires_at=lease.expires_at, lease_lost=False)


def _our_lease(seen: Seen) -> Held | None:
    status = seen.status
    if isinstance(status, Held) and status.holder == HOLDER and status.lease_id is not None:
        return status
    return None


def running(services: tuple[ServiceSeen, ...] | None) -> tuple[ServiceSeen, ...]:
    """The services that were seen to run. Unknown ones are not among them."""
    return tuple(service for service in services or () if service.condition is Condition.RUNNING)


def _stopped(services: tuple[ServiceSeen, ...] | None) -> tuple[ServiceSeen, ...]:
    return tuple(service for service in services or () if service.condition is Condition.STOPPED)


def _asked(seen: Seen, kind: RequestKind) -> bool:
    return seen.request is not None and seen.request.kind is kind


def _met_by_the_way_back(seen: Seen) -> bool:
    """Whether a `release` was made on the way there or back: in llm, nothing is left to do for it."""
    return release_asked(seen.request) and seen.request is not None and seen.request.made_in in _HAS_OR_OWES_GPU


def _forces_the_drain(seen: Seen) -> bool:
    """Whether a `release` was made in `draining`. The one that ended `audio` does not also force the drain."""
    return release_asked(seen.request) and seen.request is not None and seen.request.made_in is Phase.DRAINING


def later(first: datetime | None, second: datetime) -> datetime:
    """The later of two moments, where the first may be missing."""
    return second if first is None else max(first, second)


def add(now: datetime, wait: timedelta) -> datetime:
    """`now + wait`, cut at what a timestamp can hold."""
    return now + min(wait, FAR_FUTURE - now)


_BY_PHASE: dict[Phase, Callable[[PhaseState, Seen, Policy], Transition]] = {
    Phase.LLM: _llm,
    Phase.DRAINING_POST: _draining_post,
    Phase.ACQUIRING: _acquiring,
    Phase.STARTING_SERVICES: _starting_services,
    Phase.AUDIO: _audio,
    Phase.DRAINING: _draining,
    Phase.STOPPING_SERVICES: _stopping_services,
    Phase.RELEASING: _releasing,
    Phase.ERROR: _error,
}
