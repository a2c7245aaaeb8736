"""What holds for every single tick, whatever the world answers: used on drawn ticks, on days, and on the whole walk.

Each rule is told from the outside, from the row before, what was seen, and the transition; none repeats how `decide`
comes to it. A rule gives the words of its violation, or nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.decide import FAR_FUTURE
from voxint.gpu_phase.model import (
    EDGES,
    HOLDER,
    LAST_ERROR_LIMIT,
    Cause,
    Condition,
    Lane,
    Phase,
    PhaseState,
    RequestKind,
    RequestOutcome,
    Transition,
)
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.policy import BACKOFF_FIRST, BACKOFF_LONGEST, Policy

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.gpu_phase.plan import Seen

P, C = Phase, Cause
TO_AUDIO = frozenset({P.DRAINING_POST, P.ACQUIRING, P.STARTING_SERVICES, P.AUDIO})
WITH_LEASE = frozenset({P.STARTING_SERVICES, P.AUDIO, P.DRAINING})
FAILING = frozenset(
    {
        C.REFUSED,
        C.ACQUIRE_FAILED,
        C.ACQUIRE_LIMIT,
        C.START_LIMIT,
        C.WRONG_DEVICE,
        C.LEASE_LOST,
        C.SERVICE_STOPPED,
        C.STOP_LIMIT,
        C.RELEASE_FAILED,
        C.RELEASE_LIMIT,
    }
)
HOME = frozenset({C.RELEASED, C.NOTHING_HELD, C.STATUS_UNKNOWN})
STAYS = frozenset({C.IDLE, C.WAITING, C.UNKNOWN, C.HELD_OFF, C.LEASE_LEARNED, C.WORKING})


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, from the outside."""

    before: PhaseState
    seen: Seen
    policy: Policy
    made: Transition

    @property
    def after(self) -> PhaseState:
        return self.made.state

    def went(self, start: Phase, end: Phase) -> bool:
        return self.before.phase is start and self.after.phase is end

    def stayed(self, phase: Phase) -> bool:
        return self.went(phase, phase)

    def conditions(self) -> set[Condition]:
        return {service.condition for service in self.seen.services or ()}

    def in_hours(self, moment: datetime) -> bool:
        """Whether GPU_PHASE_WINDOWS has this minute, by looking at each stretch. Days and draws are in UTC."""
        minute = moment.hour * 60 + moment.minute
        stretches = self.policy.windows.stretches
        return not stretches or any(
            begin <= minute < end or (end < begin and (minute < end or minute >= begin)) for begin, end in stretches
        )

    def hours_are_over(self) -> bool:
        """Whether this phase began within the hours, and they have ended since."""
        return self.in_hours(self.before.phase_since) and not self.in_hours(self.seen.now)

    def room_for_a_turn(self) -> bool:
        """Whether the hours go on for min dwell: looked at minute by minute."""
        if not self.in_hours(self.seen.now):
            return False
        after, end = self.seen.now.replace(second=0, microsecond=0), self.seen.now + self.policy.min_dwell
        while (after := after + timedelta(minutes=1)) < end:
            if not self.in_hours(after):
                return False
        return True


Rule = Callable[[Tick], str | None]
RULES: list[Rule] = []


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check


def broken(tick: Tick) -> Iterator[str]:
    """The words of every rule that this tick breaks."""
    for check in RULES:
        words = check(tick)
        if words:
            yield f"{check.__name__}: {words}"


@rule
def one_known_step(t: Tick) -> str | None:
    if t.made.before != t.before:
        return "the transition does not start from the row that was read"
    if t.after.phase is t.before.phase:
        if t.made.cause not in STAYS or t.after.phase_since != t.before.phase_since:
            return f"stayed in {t.before.phase} as if it had moved ({t.made.cause})"
    elif t.made.cause not in EDGES.get((t.before.phase, t.after.phase), ()):
        return f"no edge {t.before.phase} -> {t.after.phase} ({t.made.cause})"
    elif t.after.phase_since != t.seen.now:
        return "a step does not begin now"
    return None


@rule
def row_that_the_database_takes(t: Tick) -> str | None:
    row = t.after
    if row.phase is P.LLM and row.lease_id is not None:
        return "llm holds a lease"
    if row.phase in WITH_LEASE and row.lease_id is None:
        return f"{row.phase} without a lease"
    if row.llm_ready and row.phase is not P.LLM:
        return f"ready in {row.phase}"
    if row.lease_id is None and (row.lease_expires_at is not None or row.lease_lost):
        return "an expiry, or a loss, of no lease"
    return None


@rule
def one_clean_line_of_reason(t: Tick) -> str | None:
    for text, known in ((t.after.last_error, t.before.last_error), (t.after.note, None)):
        if text is None or text == known:
            continue
        clean = text.isprintable() or all(unicodedata.category(c) not in {"Cc", "Cf", "Cs"} for c in text)
        if len(text) > LAST_ERROR_LIMIT or not clean:
            return f"not a clean line: {text!r}"
    return None


@rule
def readiness_of_this_tick_in_llm(t: Tick) -> str | None:
    answered = t.stayed(P.LLM) and t.seen.llm is not None and t.seen.llm.ready
    if t.after.llm_ready != answered:
        return f"llm_ready is {t.after.llm_ready}, and this tick's answer in llm is {answered}"
    if answered and t.after.llm_checked_at != t.seen.now:
        return "an answer of another moment"
    return None


@rule
def failures_counted_once(t: Tick) -> str | None:
    cause = t.made.cause
    fails = cause in FAILING or (cause is C.STATUS_UNKNOWN and not t.before.cycle_failed)
    if fails:
        backoff = min(BACKOFF_FIRST * 2 ** min(t.before.failures, 5), BACKOFF_LONGEST)
        wait = max(backoff, (t.seen.acquire.retry_after or backoff) if isinstance(t.seen.acquire, Refused) else backoff)
        if cause is not C.REFUSED:
            wait = backoff
        until = FAR_FUTURE if wait > FAR_FUTURE - t.seen.now else t.seen.now + wait
        if t.after.failures != t.before.failures + 1 or not t.after.cycle_failed or not t.after.last_error:
            return f"{cause} was not counted"
        return None if t.after.retry_after == until else f"{cause}: next try at {t.after.retry_after}, not at {until}"
    if cause in HOME and not t.before.cycle_failed:
        return None if (t.after.failures, t.after.retry_after) == (0, None) else "a whole clean cycle forgets nothing"
    return None if t.after.failures == t.before.failures else f"{cause} changed the failure count"


@rule
def last_error_stays_until_a_switch_begins(t: Tick) -> str | None:
    gone = t.before.last_error is not None and t.after.last_error is None
    if gone != (t.before.last_error is not None and t.went(P.LLM, P.DRAINING_POST)):
        return f"last_error went from {t.before.last_error!r} to {t.after.last_error!r} by {t.made.cause}"
    return None


@rule
def no_lease_forgotten(t: Tick) -> str | None:
    if t.before.lease_id is not None and t.after.lease_id is None and not isinstance(t.seen.release, Done):
        return f"the lease was dropped by {t.made.cause}"
    if isinstance(t.seen.acquire, Granted) and t.after.lease_id != t.seen.acquire.lease_id:
        return "a granted lease was not stored"
    if isinstance(t.seen.renewal, Granted) and t.after.lease_id != t.seen.renewal.lease_id:
        return "a renewed lease was not stored"
    status = t.seen.status
    if isinstance(status, Held) and status.holder == HOLDER and status.lease_id is not None:
        known = t.after.lease_id or (t.before.phase is P.RELEASING and t.before.lease_id)
        if known != status.lease_id:
            return "a lease that the broker says is ours was not adopted"
    return None


@rule
def only_our_lease_adopted(t: Tick) -> str | None:
    told = {a.lease_id for a in (t.seen.acquire, t.seen.renewal) if isinstance(a, Granted)}
    if isinstance(t.seen.status, Held) and t.seen.status.holder == HOLDER:
        told.add(t.seen.status.lease_id or "")
    if t.after.lease_id not in {None, t.before.lease_id, *told}:
        return "a lease of somebody else was taken for ours"
    return None


@rule
def lost_lease_ends_the_turn(t: Tick) -> str | None:
    if t.before.phase not in WITH_LEASE | {P.STOPPING_SERVICES, P.ERROR} or t.before.lease_id is None:
        return None
    renewal = t.seen.renewal
    expiry = renewal.expires_at if isinstance(renewal, Granted) else t.before.lease_expires_at
    lost = isinstance(renewal, Lost) or (expiry is not None and t.seen.now >= expiry)
    if isinstance(renewal, Granted) and not lost:
        return "a renewed lease is marked as lost" if t.after.lease_lost else None
    if (lost or t.before.lease_lost) != t.after.lease_lost:
        return f"lost is {lost}, and stored is {t.after.lease_lost}"
    if lost and t.before.phase in WITH_LEASE and t.after.phase is not P.STOPPING_SERVICES:
        return f"a lost lease goes on in {t.after.phase}"
    return None


@rule
def what_runs_unasked_is_stopped(t: Tick) -> str | None:
    outside = {P.LLM, P.DRAINING_POST, P.ACQUIRING, P.RELEASING}
    if t.before.phase in outside and Condition.RUNNING in t.conditions() and t.after.phase is not P.STOPPING_SERVICES:
        return f"a service runs, and {t.before.phase} went to {t.after.phase}"
    return None


@rule
def a_stopped_service_ends_the_turn(t: Tick) -> str | None:
    if t.before.phase in {P.AUDIO, P.DRAINING} and Condition.STOPPED in t.conditions():
        return None if t.after.phase is P.STOPPING_SERVICES else f"a service stopped, and {t.before.phase} goes on"
    return None


@rule
def unknown_is_neither_stopped_nor_free(t: Tick) -> str | None:
    not_stopped = t.seen.services is None or t.conditions() - {Condition.STOPPED}
    if not_stopped and t.after.phase is not t.before.phase:
        if t.went(P.STOPPING_SERVICES, P.RELEASING):
            return "the services were not seen stopped"
        if t.before.phase is P.RELEASING and t.after.phase is P.LLM:
            return "handed back without having seen the services stopped"
    if t.went(P.LLM, P.DRAINING_POST):
        blind = not isinstance(t.seen.status, Free | Held) or (
            t.seen.status != Free() and t.seen.status.holder == HOLDER
        )
        if not_stopped or blind:
            return "a switch began blindly"
    return None


@rule
def audio_only_with_all_healthy(t: Tick) -> str | None:
    if not t.went(P.STARTING_SERVICES, P.AUDIO):
        return None
    if not isinstance(t.seen.renewal, Granted):
        return "audio without this tick's renewal"
    return None if all(s.healthy for s in t.seen.services or ()) else "audio with a service that is not healthy"


@rule
def a_barred_service_ends_the_start(t: Tick) -> str | None:
    barred = any(s.barred for s in t.seen.services or ())
    if t.before.phase is not P.STARTING_SERVICES:
        return "a device decides in another phase" if t.made.cause is C.WRONG_DEVICE else None
    if barred and t.after.phase is not P.STOPPING_SERVICES:
        return "a start goes on with a service on a device that is not allowed"
    return "ended for a device that nobody barred" if t.made.cause is C.WRONG_DEVICE and not barred else None


@rule
def a_switch_waits_for_its_time(t: Tick) -> str | None:
    if not t.went(P.LLM, P.DRAINING_POST) or t.made.cause is C.AUDIO_NOW:
        return None
    now = t.seen.now
    if not t.seen.work.gpu_queued:
        return "a switch without work"
    if now - t.before.phase_since < t.policy.min_dwell:
        return "a switch before min dwell"
    if t.before.retry_after is not None and now < t.before.retry_after:
        return "a switch before retry_after"
    if not t.room_for_a_turn():
        return "a switch outside the hours, or shortly before their end"
    return "a switch under a hold" if t.seen.hold_until is not None and now < t.seen.hold_until else None


@rule
def a_switch_that_is_due_begins(t: Tick) -> str | None:
    now = t.seen.now
    due = (
        t.stayed(P.LLM)
        and t.seen.request is None
        and t.seen.work.gpu_queued
        and now - t.before.phase_since >= t.policy.min_dwell
        and (t.before.retry_after is None or now >= t.before.retry_after)
        and (t.seen.hold_until is None or now >= t.seen.hold_until)
        and t.room_for_a_turn()
        and t.made.cause is not C.UNKNOWN
    )
    return "work waits, and nothing keeps the switch back" if due else None


@rule
def audio_lasts_as_long_as_it_may(t: Tick) -> str | None:
    age = t.seen.now - t.before.phase_since
    empty = not (t.seen.work.gpu_queued or t.seen.work.gpu_in_progress)
    if t.stayed(P.AUDIO):
        if age >= t.policy.max_audio:
            return "audio goes on at its limit"
        if empty and age >= t.policy.min_dwell:
            return "audio goes on with nothing to do"
        if t.hours_are_over():
            return "audio goes on after its hours"
    if t.went(P.AUDIO, P.DRAINING) and t.made.request is not RequestOutcome.ACTED and age < t.policy.max_audio:
        return None if (empty and age >= t.policy.min_dwell) or t.hours_are_over() else "an early hand-back"
    return None


@rule
def no_phase_outstays_its_limit(t: Tick) -> str | None:
    limits = {
        P.ACQUIRING: t.policy.acquire_limit,
        P.STARTING_SERVICES: t.policy.start_limit,
        P.STOPPING_SERVICES: t.policy.stop_limit,
        P.RELEASING: t.policy.release_limit,
    }
    limit = limits.get(t.before.phase)
    if limit is None or t.after.phase is not t.before.phase or t.made.cause is C.LEASE_LEARNED:
        return None
    return f"{t.before.phase} goes on at its limit" if t.seen.now - t.before.phase_since >= limit else None


@rule
def limits_are_not_early(t: Tick) -> str | None:
    age = t.seen.now - t.before.phase_since
    limits = {
        C.ACQUIRE_LIMIT: t.policy.acquire_limit,
        C.START_LIMIT: t.policy.start_limit,
        C.STOP_LIMIT: t.policy.stop_limit,
        C.RELEASE_LIMIT: t.policy.release_limit,
        C.MAX_AUDIO: t.policy.max_audio,
    }
    limit = limits.get(t.made.cause)
    return f"{t.made.cause} before its time" if limit is not None and age < limit else None


@rule
def error_waits_for_its_retry(t: Tick) -> str | None:
    if t.before.phase is not P.ERROR:
        return None
    waits = t.before.retry_after is not None and t.seen.now < t.before.retry_after
    asked = t.seen.request is not None and t.seen.request.kind is RequestKind.RELEASE
    if (t.after.phase is P.ERROR) != (waits and not asked):
        return "error does not keep to its retry time"
    return None


@rule
def a_drain_ends_at_zero_and_the_save_looks_again(t: Tick) -> str | None:
    lane = {C.DRAINED: Lane.GPU, C.POST_DRAINED: Lane.POST}.get(t.made.cause)
    if t.made.drained is not lane:
        return f"{t.made.cause} looks again at {t.made.drained}"
    busy = {Lane.GPU: t.seen.work.gpu_in_progress, Lane.POST: t.seen.work.post_in_progress}
    if lane is not None and busy[lane]:
        return f"the {lane} lane was not empty"
    if t.stayed(P.DRAINING) and not busy[Lane.GPU]:
        return "draining waits for nothing"
    if t.stayed(P.DRAINING_POST) and not busy[Lane.POST]:
        return "draining_post waits for nothing"
    return None


@rule
def work_is_cut_where_the_gpu_goes_under_it(t: Tick) -> str | None:
    cuts = t.made.cause in {C.LEASE_LOST, C.SERVICE_STOPPED, C.RELEASE_FORCED}
    if (t.made.cut is not None) != cuts:
        return f"{t.made.cause} {'does not cut' if cuts else 'cuts'}"
    if t.made.cut is None:
        return None
    gone = {s.name for s in t.seen.services or () if s.condition is Condition.STOPPED}
    right = gone if t.made.cause is C.SERVICE_STOPPED else set()
    return None if t.made.cut.blamed == right else f"{set(t.made.cut.blamed)} blamed, not {right}"


@rule
def audio_now_is_acted_on_or_met(t: Tick) -> str | None:
    if t.seen.request is None or t.seen.request.kind is not RequestKind.AUDIO_NOW:
        return None
    if (t.made.request is RequestOutcome.ACTED) != (t.made.cause is C.AUDIO_NOW):
        return f"audio-now: {t.made.request} by {t.made.cause}"
    if t.made.request is RequestOutcome.MET and t.before.phase not in TO_AUDIO:
        return f"audio-now is not met in {t.before.phase}"
    on_course = t.after.phase in TO_AUDIO and t.before.phase in TO_AUDIO
    if on_course and t.made.request is not RequestOutcome.MET:
        return f"audio-now was left pending in {t.before.phase}"
    if t.stayed(P.LLM) and t.made.cause is not C.UNKNOWN:
        return "audio-now was not acted on in llm"
    return None


@rule
def release_is_acted_on_or_met(t: Tick) -> str | None:
    request = t.seen.request
    if request is None or request.kind is not RequestKind.RELEASE:
        return None if request is not None or t.made.request is None else "a request was consumed that there is not"
    outcome, cause = t.made.request, t.made.cause
    if outcome is RequestOutcome.ACTED and cause not in {C.RELEASE_ASKED, C.RELEASE_FORCED, C.HELD_OFF}:
        return f"release acted on by {cause}"
    if cause in {C.RELEASE_ASKED, C.RELEASE_FORCED} and outcome is not RequestOutcome.ACTED:
        return f"{cause} left its request pending"
    if cause is C.RELEASE_FORCED and request.made_in is not P.DRAINING:
        return "a release of before forced the drain"
    in_llm = {None, P.LLM, P.DRAINING_POST}
    if t.stayed(P.LLM) and (outcome is RequestOutcome.ACTED) != (request.made_in in in_llm):
        return f"release made in {request.made_in}: {outcome}"
    if outcome is RequestOutcome.MET and t.before.phase is not P.DRAINING:
        return None if t.after.phase is P.LLM and request.made_in not in in_llm else f"release met by {cause}"
    acts_at_once = {P.ACQUIRING, P.AUDIO, P.ERROR, P.STARTING_SERVICES, P.DRAINING_POST}
    if t.before.phase in acts_at_once and t.after.phase is t.before.phase:
        return f"{t.before.phase} did not hear the release"
    return None


@rule
def a_hold_off_never_shortens(t: Tick) -> str | None:
    turned_back = t.went(P.DRAINING_POST, P.LLM)
    if not turned_back and not (t.stayed(P.LLM) and t.made.request is RequestOutcome.ACTED):
        same = t.after.retry_after == t.before.retry_after
        return None if same or not t.stayed(P.LLM) else "retry_after changed in llm"
    least = t.seen.now + t.policy.min_dwell
    wanted = max(least, t.before.retry_after or least)
    return None if t.after.retry_after == wanted else f"held off until {t.after.retry_after}, not {wanted}"


@rule
def answers_of_the_broker_lead_where_they_must(t: Tick) -> str | None:
    acquire, release = t.seen.acquire, t.seen.release
    if isinstance(acquire, Granted) and t.after.phase is not P.STARTING_SERVICES:
        return "a grant was not used"
    if isinstance(acquire, Failed) and t.after.phase is not P.RELEASING:
        return "an acquire without an answer must go through releasing"
    if isinstance(acquire, Refused):
        ours = acquire.holder == HOLDER
        if t.after.phase is not (P.RELEASING if ours else P.LLM):
            return f"a refusal led to {t.after.phase}"
    if isinstance(release, Failed) and t.after.phase is not P.ERROR:
        return "a release that failed must end in error"
    if isinstance(release, Pending) and t.after.phase not in {P.RELEASING, P.ERROR}:
        return "a release that is pending was taken for done"
    return None
