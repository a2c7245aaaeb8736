"""Which calls a tick makes, when a lane is open, and the operator's numbers: whole tables, and each limit exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from phase_rows import (
    JUST,
    NOON,
    RENEWED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    R,
    S,
    U,
    ago,
    ahead,
    audio_now,
    leased,
    release,
    seen,
    services,
    state,
)

from voxint.gpu_phase import lanes
from voxint.gpu_phase.decide import FAR_FUTURE, add, later
from voxint.gpu_phase.model import Lane, Phase
from voxint.gpu_phase.outcomes import Failed, Granted, Lost
from voxint.gpu_phase.plan import Call, all_stopped, may, plan, release_asked, renewed
from voxint.gpu_phase.policy import Policy, backoff

C, P = Call, Phase
NO_LEASE, LEASED, LOST = "no lease", "lease", "lost lease"

PLANS = [
    (P.LLM, NO_LEASE, (C.PROBE_LLM, C.INSPECT, C.STATUS)),
    (P.DRAINING_POST, NO_LEASE, (C.INSPECT,)),
    (P.ACQUIRING, NO_LEASE, (C.INSPECT, C.ACQUIRE)),
    (P.STARTING_SERVICES, LEASED, (C.RENEW, C.START, C.HEALTH, C.PLACEMENT)),
    (P.AUDIO, LEASED, (C.RENEW, C.INSPECT, C.PLACEMENT)),
    (P.DRAINING, LEASED, (C.RENEW, C.INSPECT)),
    (P.STOPPING_SERVICES, NO_LEASE, (C.STOP, C.INSPECT)),
    (P.STOPPING_SERVICES, LEASED, (C.RENEW, C.STOP, C.INSPECT)),
    (P.STOPPING_SERVICES, LOST, (C.STOP, C.INSPECT)),
    (P.RELEASING, NO_LEASE, (C.INSPECT, C.STATUS)),
    (P.RELEASING, LEASED, (C.INSPECT, C.RELEASE)),
    (P.RELEASING, LOST, (C.INSPECT, C.RELEASE)),
    (P.ERROR, NO_LEASE, (C.STOP, C.INSPECT)),
    (P.ERROR, LEASED, (C.RENEW, C.STOP, C.INSPECT)),
    (P.ERROR, LOST, (C.STOP, C.INSPECT)),
]
WITH_RELEASE = {
    (P.ACQUIRING, NO_LEASE): (),
    (P.STARTING_SERVICES, LEASED): (C.RENEW,),
    (P.AUDIO, LEASED): (C.RENEW, C.INSPECT),
}


def stored(phase, lease):
    if lease == NO_LEASE:
        return state(phase)
    return leased(phase, lease_lost=lease == LOST)


@pytest.mark.parametrize(("phase", "lease", "calls"), PLANS)
def test_the_stored_phase_and_its_lease_pick_the_calls(phase, lease, calls):
    assert plan(stored(phase, lease), None) == calls
    assert plan(stored(phase, lease), audio_now(phase)) == calls


@pytest.mark.parametrize(("phase", "lease", "calls"), PLANS)
def test_a_release_takes_calls_away_on_the_way_to_audio_and_nowhere_else(phase, lease, calls):
    assert plan(stored(phase, lease), release(phase)) == WITH_RELEASE.get((phase, lease), calls)


def test_every_phase_is_planned_for():
    assert {phase for phase, _, _ in PLANS} == set(Phase)


@pytest.mark.parametrize(
    ("found", "stopped"),
    [(STOPPED, True), (RUNNING, False), (UNKNOWN, False), (services(S, S, R), False), (services(U), False), ((), True)],
)
def test_all_stopped_needs_every_service_seen_as_stopped(found, stopped):
    assert all_stopped(found) is stopped


def test_not_asked_is_not_stopped():
    assert all_stopped(None) is False


@pytest.mark.parametrize("call", [Call.ACQUIRE, Call.RELEASE])
@pytest.mark.parametrize(("found", "right"), [(STOPPED, True), (UNKNOWN, False), (RUNNING, False), (None, False)])
def test_the_broker_is_asked_to_change_hands_only_where_all_are_seen_stopped(call, found, right):
    assert may(call, seen(services=found, renewal=RENEWED)) is right


@pytest.mark.parametrize("call", [Call.START, Call.HEALTH, Call.PLACEMENT])
@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (RENEWED, True),
        (Granted("b7c1", None), True),
        (Granted("b7c1", NOON + JUST), True),
        (Granted("b7c1", NOON), False),
        (Lost("gone"), False),
        (Failed("503"), False),
        (None, False),
    ],
)
def test_nothing_is_started_without_a_renewal_in_this_very_tick(call, answer, right):
    assert may(call, seen(services=STOPPED, renewal=answer)) is right
    assert renewed(seen(renewal=answer)) is right


@pytest.mark.parametrize(
    "call", sorted(set(Call) - {Call.ACQUIRE, Call.RELEASE, Call.START, Call.HEALTH, Call.PLACEMENT})
)
def test_the_other_calls_are_always_right(call):
    assert may(call, seen(services=UNKNOWN))


def test_release_asked_tells_the_two_requests_apart():
    assert release_asked(release(None))
    assert not release_asked(audio_now(None))
    assert not release_asked(None)


# --- lanes ---

ON = Policy()
FRESH = {"llm_ready": True, "llm_checked_at": NOON}


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("stored_state", [None, state(P.ERROR), state(P.LLM), leased(P.AUDIO)])
def test_sharing_off_opens_both_lanes(lane, stored_state):
    assert lanes.is_open(lane, stored_state, NOON, replace(ON, enabled=False))


@pytest.mark.parametrize("lane", Lane)
def test_no_row_closes_both_lanes(lane):
    assert not lanes.is_open(lane, None, NOON, ON)
    assert not lanes.goes_on(lane, None, NOON)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("lane", Lane)
def test_each_lane_is_open_in_one_phase_and_drained_in_one(lane, phase):
    here = leased(phase, **FRESH)
    own, drained = (P.AUDIO, P.DRAINING) if lane is Lane.GPU else (P.LLM, P.DRAINING_POST)
    assert lanes.is_open(lane, here, NOON, ON) is (phase is own)
    assert lanes.goes_on(lane, here, NOON) is (phase is drained)


@pytest.mark.parametrize(
    ("fields", "good"),
    [
        ({"lease_expires_at": NOON + JUST}, True),
        ({"lease_expires_at": NOON}, False),
        ({"lease_expires_at": ago(1)}, False),
        ({"lease_expires_at": None}, True),
        ({"lease_lost": True}, False),
        ({"lease_expires_at": None, "lease_lost": True}, False),
        ({"lease_id": None, "lease_expires_at": None}, False),
    ],
)
def test_the_gpu_lane_needs_a_lease_that_is_good(fields, good):
    audio = leased(P.AUDIO, **fields)
    assert lanes.lease_good(audio, NOON) is good
    assert lanes.gpu_lane_open(audio, NOON) is good
    assert lanes.is_open(Lane.GPU, audio, NOON, ON) is good
    assert lanes.goes_on(Lane.GPU, leased(P.DRAINING, **fields), NOON) is good


@pytest.mark.parametrize(
    ("fields", "is_open"),
    [
        (FRESH, True),
        ({"llm_ready": False, "llm_checked_at": NOON}, False),
        ({"llm_ready": True, "llm_checked_at": None}, False),
        ({"llm_ready": True, "llm_checked_at": ago(90)}, True),
        ({"llm_ready": True, "llm_checked_at": ago(90) - JUST}, False),
        ({"llm_ready": True, "llm_checked_at": ahead(1)}, True),
    ],
)
def test_the_post_lane_needs_a_fresh_answer(fields, is_open):
    llm = state(P.LLM, **fields)
    assert lanes.post_lane_open(llm, NOON, ON) is is_open
    assert lanes.is_open(Lane.POST, llm, NOON, ON) is is_open


def test_segments_of_the_post_lane_go_on_without_a_lease():
    assert lanes.goes_on(Lane.POST, state(P.DRAINING_POST), NOON)


# --- policy, and the arithmetic of moments ---


@pytest.mark.parametrize(
    ("failures", "wait"),
    [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 900), (7, 900), (10_000_000, 900), (0, 30), (-3, 30)],
)
def test_backoff_doubles_up_to_a_quarter_of_an_hour(failures, wait):
    assert backoff(failures) == timedelta(seconds=wait)


@pytest.mark.parametrize(
    ("tick", "ttl", "answer", "silence"),
    [(30, 600, 90, 120), (5, 600, 90, 120), (60, 600, 180, 180), (61, 610, 183, 183), (31, 600, 93, 120)],
)
def test_what_follows_from_the_tick(tick, ttl, answer, silence):
    policy = Policy(tick=timedelta(seconds=tick))
    assert policy.ttl == timedelta(seconds=ttl)
    assert policy.answer_max_age == timedelta(seconds=answer)
    assert policy.task_max_silence == timedelta(seconds=silence)


def test_the_defaults_are_those_of_the_settings():
    assert Policy() == Policy(
        enabled=True,
        tick=timedelta(seconds=30),
        min_dwell=timedelta(seconds=600),
        max_audio=timedelta(seconds=7200),
        acquire_limit=timedelta(seconds=600),
        start_limit=timedelta(seconds=600),
        stop_limit=timedelta(seconds=120),
        release_limit=timedelta(seconds=900),
    )


def test_the_longest_wait_is_cut_at_what_is_stored():
    room = FAR_FUTURE - NOON
    assert add(NOON, room) == FAR_FUTURE
    assert add(NOON, room - JUST) == FAR_FUTURE - JUST
    assert add(NOON, room + JUST) == FAR_FUTURE
    assert add(NOON, timedelta.max) == FAR_FUTURE


def test_the_later_of_two_moments():
    assert later(NOON, ahead(1)) == later(ahead(1), NOON) == ahead(1)
    assert later(None, NOON) == NOON


@pytest.mark.parametrize("age", [1e-6, 0, 86_400])
def test_a_row_of_the_past_or_the_present_stays_as_it_is(age):
    row = state(P.LLM, age=age, retry_after=ahead(9))
    assert row.not_ahead_of(NOON) is row


@pytest.mark.parametrize("retry_after", [None, timedelta(days=1, seconds=30)])
def test_where_the_clock_was_set_back_the_phase_begins_now_and_its_wait_goes_back_too(retry_after):
    row = state(P.ERROR, age=-86_400, retry_after=retry_after and NOON + retry_after)
    settled = row.not_ahead_of(NOON)
    assert settled == replace(row, phase_since=NOON, retry_after=retry_after and ahead(30))
