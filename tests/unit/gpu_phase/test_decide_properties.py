"""What holds for every tick: finite inputs are gone through one by one, numbers and times are drawn."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import phase_rules
import pytest
from hypothesis import given
from hypothesis import strategies as st
from phase_calls import FIELDS
from phase_draws import REPEATABLE, moments, states, ticks, waits
from phase_rows import JUST, NOON, POLICY, STOPPED, R, S, U, ago, ahead, leased, seen, services, state

from voxint.gpu_phase import decide as machine
from voxint.gpu_phase.decide import FAR_FUTURE, add, decide, later
from voxint.gpu_phase.model import EDGES, HOLDER, LlmSeen, Phase, Request, RequestKind, WorkSeen
from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.gpu_phase.plan import Call, Seen, may, plan
from voxint.gpu_phase.policy import backoff

each_phase = pytest.mark.parametrize("phase", Phase)


def broken(before, saw, policy):
    return list(phase_rules.broken(phase_rules.Tick(before, saw, policy, decide(before, saw, policy))))


@each_phase
def test_every_rule_holds_for_drawn_numbers_and_times(phase):
    @REPEATABLE
    @given(ticks(phase))
    def check(drawn):
        assert not broken(*drawn)

    check()


ANSWERS = {
    Call.PROBE_LLM: [LlmSeen(ready=True), LlmSeen(ready=False)],
    Call.INSPECT: [services(*c) for c in itertools.combinations_with_replacement((S, R, U), 3)],
    Call.HEALTH: [services(S, S, S), services(R, R, R), services(R, R, R, healthy=True), services(U, R, R)],
    Call.STATUS: [
        Free(),
        Failed("x"),
        Held(HOLDER, "b7c1"),
        Held(HOLDER, None),
        Held("other", "zz9"),
        Held(None, None),
    ],
    Call.ACQUIRE: [
        Granted("b7c1", None),
        Granted("b7c1", ahead(9)),
        Pending(),
        Failed("x"),
        Refused(HOLDER),
        Refused("other", timedelta(hours=1)),
        Refused(),
    ],
    Call.RENEW: [Granted("b7c1", None), Granted("b7c1", NOON), Granted("c9", ahead(9)), Lost("x"), Failed("x")],
    Call.RELEASE: [Done(), Pending(), Failed("x")],
}
LIMITS = {
    Phase.LLM: 100,
    Phase.DRAINING_POST: 5,
    Phase.ACQUIRING: 60,
    Phase.STARTING_SERVICES: 70,
    Phase.AUDIO: 1000,
    Phase.DRAINING: 5,
    Phase.STOPPING_SERVICES: 80,
    Phase.RELEASING: 90,
    Phase.ERROR: 5,
}
PAIRS = 17
WORK = [WorkSeen(*flags) for flags in itertools.product((False, True), repeat=3)]
REQUESTS = [None] + [
    Request(7, kind, made_in, ago(1)) for kind in RequestKind for made_in in (None, *Phase)
]  # fmt: skip


def rows(phase):
    ages = (LIMITS[phase] - 1e-6, LIMITS[phase], 100)
    retries = (None, NOON, NOON + JUST)
    leases = {
        Phase.LLM: [{}],
        Phase.DRAINING_POST: [{}],
        Phase.ACQUIRING: [{}],
        Phase.STARTING_SERVICES: [{"lease_expires_at": end} for end in (None, NOON, NOON + JUST)],
        Phase.AUDIO: [{"lease_expires_at": end} for end in (None, NOON, NOON + JUST)],
        Phase.DRAINING: [{"lease_expires_at": end} for end in (None, NOON, NOON + JUST)],
    }.get(phase, [{"lease_id": None, "lease_expires_at": None}, {}, {"lease_expires_at": NOON}, {"lease_lost": True}])
    make = state if phase in {Phase.LLM, Phase.DRAINING_POST, Phase.ACQUIRING} else leased
    for age, retry, lease, failed in itertools.product(ages, retries, leases, (False, True)):
        yield make(phase, age, retry_after=retry, failures=2 * failed, cycle_failed=failed, last_error="old", **lease)


def all_seen(row, request, calls, saw):
    """Every way in which a tick can go: each planned call with each of its answers."""
    if not calls:
        yield saw
        return
    call, rest = calls[0], calls[1:]
    if call not in FIELDS or not may(call, saw):
        yield from all_seen(row, request, rest, saw)
        return
    for answer in ANSWERS[call]:
        yield from all_seen(row, request, rest, replace(saw, **{FIELDS[call]: answer}))


@each_phase
def test_every_rule_holds_for_every_answer_of_every_call(phase):
    """All answers x work or requests, at each limit just before and exactly at."""
    seen_ticks = 0
    varied = [(WorkSeen(gpu_queued=True), request) for request in REQUESTS] + [(work, None) for work in WORK]
    for number, row in enumerate(rows(phase)):
        # Every third pair of work and request with each row keeps this within a second; all pairs come by.
        for work, request in varied[number % 3 :: 3]:
            for saw in all_seen(row, request, plan(row, request), seen(work=work, request=request)):
                seen_ticks += 1
                assert not broken(row, saw, POLICY)
    assert seen_ticks > 100


@each_phase
def test_a_rule_that_is_broken_is_found(phase, monkeypatch):
    """The twin: a machine that keeps its old readiness is caught in every phase."""
    right = machine._BY_PHASE[phase]

    def keeps_readiness(before, saw, policy):
        made = right(before, saw, policy)
        return replace(made, state=replace(made.state, llm_ready=True))

    monkeypatch.setitem(machine._BY_PHASE, phase, keeps_readiness)
    row = next(iter(rows(phase)))
    saw = next(all_seen(row, None, plan(row, None), seen()))
    if phase is Phase.LLM:
        saw = replace(saw, llm=LlmSeen(ready=False))
    assert any("readiness" in words for words in broken(row, saw, POLICY))


@REPEATABLE
@given(st.sampled_from(Phase).flatmap(ticks))
def test_a_decision_does_not_depend_on_when_it_is_made(drawn):
    """Shifting every moment by a day shifts the answer by a day: there is no hidden clock."""
    before, saw, policy = drawn
    day = timedelta(days=1)

    def moved(moment):
        return None if moment is None else moment + day

    def row(one):
        return replace(
            one,
            phase_since=moved(one.phase_since),
            lease_expires_at=moved(one.lease_expires_at),
            retry_after=one.retry_after if one.retry_after == FAR_FUTURE else moved(one.retry_after),
            llm_checked_at=moved(one.llm_checked_at),
        )

    def answer(one):
        return replace(one, expires_at=moved(one.expires_at)) if isinstance(one, Granted | Held) else one

    shifted = replace(
        saw,
        now=moved(saw.now),
        hold_until=moved(saw.hold_until),
        acquire=answer(saw.acquire),
        renewal=answer(saw.renewal),
        status=answer(saw.status),
    )
    expected = decide(before, saw, policy)
    got = decide(row(before), shifted, policy)
    assert got.cause is expected.cause
    assert got.state == row(expected.state)


@REPEATABLE
@given(st.data(), moments, st.sampled_from(Phase))
def test_a_lease_that_is_lost_is_never_renewed_again(data, now, phase):
    row = data.draw(states(phase, now))
    assert Call.RENEW not in plan(row, None) or not row.lease_lost


@REPEATABLE
@given(waits)
def test_any_wait_that_a_broker_asks_for_can_be_stored(wait):
    refusal = Refused("other", wait)
    got = decide(state(Phase.ACQUIRING), seen(services=STOPPED, acquire=refusal), POLICY)
    assert got.state.retry_after == min(add(NOON, max(wait, backoff(1))), FAR_FUTURE)
    assert NOON < got.state.retry_after <= FAR_FUTURE


@REPEATABLE
@given(moments, moments)
def test_later_is_never_earlier(first, second):
    assert later(first, second) == max(first, second)
    assert later(None, second) == second


def test_every_edge_and_cause_has_a_row_in_the_tables():
    reached = set()
    for name in ("test_decide_llm", "test_decide_to_audio", "test_decide_audio", "test_decide_way_back"):
        spec = importlib.util.spec_from_file_location(f"rows_of_{name}", Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        reached |= {
            (row.before.phase, row.phase, row.cause) for row in module.ROWS if row.phase is not row.before.phase
        }
    assert reached == {(start, end, cause) for (start, end), causes in EDGES.items() for cause in causes}


def test_a_tick_that_saw_nothing_is_decided_too():
    """A crash of the parts, or a plan without a call, leaves `None` everywhere: no phase raises."""
    for phase in Phase:
        for row in rows(phase):
            decide(row, Seen(NOON, WorkSeen()), POLICY)
