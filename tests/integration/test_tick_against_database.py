"""Whole ticks on a real database, with stand-ins for the broker, the services and the language model."""

from __future__ import annotations

from datetime import timedelta

import pytest
from held_transaction import held_transaction
from phase_world import STAGES, FakeBroker, FakeLanguageModel, FakeServices
from sqlalchemy import text

from voxint.gpu_phase.gate import Gate
from voxint.gpu_phase.model import Cause, Lane, Phase, RequestKind
from voxint.gpu_phase.outcomes import Failed, Pending, Refused
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import PhaseStore
from voxint.gpu_phase.tick import Machine, canonical, tick

GRACE = timedelta(seconds=60)
POLICY = Policy(min_dwell=timedelta(0))


@pytest.fixture
def machine(engine):
    store = PhaseStore(engine, STAGES, grace=GRACE, attempts=3)
    return Machine(store, FakeBroker(), FakeServices(), FakeLanguageModel(), POLICY)


@pytest.fixture
def gate(engine):
    return Gate(engine, POLICY, STAGES, worker="test", grace=GRACE, attempts=3)


def add_recording(engine):
    with engine.begin() as connection:
        run_id = connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at)"
                " VALUES ('t', 's', 'file', 'f', voxint_now()) RETURNING id"
            )
        ).scalar_one()
        connection.execute(
            text(
                "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                " VALUES (:run, 'acquire', 'gpu', voxint_now(), voxint_now())"
            ),
            {"run": run_id},
        )
    return run_id


def phases(machine):
    since = machine.store.now() - timedelta(days=1)
    return [event.to_phase.value for event in machine.store.events(since)]


def go_to(machine, phase, limit=12):
    for _ in range(limit):
        tick(machine)
        if machine.store.read().state.phase is phase:
            return
    pytest.fail(f"never reached {phase}: {phases(machine)}")


def work_off(gate, lane):
    done = 0
    while (claim := gate.claim(lane)) is not None:
        assert gate.complete(claim, {})
        done += 1
    return done


def test_a_whole_turn_there_and_back(engine, machine, gate):
    add_recording(engine)
    go_to(machine, Phase.AUDIO)
    assert machine.services.running == {"whisper", "pyannote", "titanet"}
    assert work_off(gate, Lane.GPU) == 4
    go_to(machine, Phase.LLM)
    assert machine.services.running == set()
    assert machine.broker.lease is None
    assert gate.claim(Lane.POST) is None, "returning the GPU starts the wait for the language model, it does not end it"
    tick(machine)
    assert work_off(gate, Lane.POST) == 2
    assert phases(machine) == [
        "llm",
        "draining_post",
        "acquiring",
        "starting_services",
        "audio",
        "draining",
        "stopping_services",
        "releasing",
        "llm",
    ]
    names = machine.broker.names()
    assert names.count("acquire") == names.count("release") == 1
    assert [event.seconds is None for event in machine.store.events(machine.store.now() - timedelta(days=1))] == [
        True,
        *[False] * 8,
    ]


def shift_clock(engine, seconds):
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
            )
        )


def test_a_clock_that_is_set_back_by_a_day_keeps_the_gpu_from_nobody_for_a_day(engine, machine, gate):
    shift_clock(engine, 86_400)
    add_recording(engine)
    go_to(machine, Phase.AUDIO)
    assert work_off(gate, Lane.GPU) == 4
    shift_clock(engine, 0)
    go_to(machine, Phase.LLM)
    with engine.begin() as connection:
        shortest = connection.execute(text("SELECT min(seconds) FROM gpu_phase_event")).scalar_one()
    assert shortest >= 0
    machine.language_model.ready = False
    shift_clock(engine, 3600)
    tick(machine)
    shift_clock(engine, 0)
    tick(machine)
    assert machine.store.read().llm_silent_since <= machine.store.now()


def test_one_step_a_tick(engine, machine):
    add_recording(engine)
    for n in range(1, 9):
        tick(machine)
        assert len(phases(machine)) <= n


def test_a_crash_between_the_call_and_the_save_repeats_a_call_that_is_safe_to_repeat(engine, machine, monkeypatch):
    """Fault 23 b: the broker has granted, the worker dies before it writes that down."""
    add_recording(engine)
    go_to(machine, Phase.ACQUIRING)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PhaseStore, "save", die)
        with pytest.raises(KeyboardInterrupt):
            tick(machine)
    assert machine.broker.lease == "lease-1"
    machine.broker.answers["acquire"] = Failed("timed out after 10 s")
    tick(machine)
    assert machine.store.read().state.phase is Phase.RELEASING
    del machine.broker.answers["acquire"]
    go_to(machine, Phase.LLM)
    assert machine.broker.lease is None, "the lease that nobody had written down was learned and given back"


def test_a_lease_from_before_an_empty_table_is_given_back(machine):
    """Fault 23 c: no row at all, and the broker says that voxint holds a lease."""
    machine.broker.lease = "old1"
    go_to(machine, Phase.STOPPING_SERVICES)
    go_to(machine, Phase.LLM)
    assert ("release", "old1") in machine.broker.calls
    assert machine.store.read().state.failures == 0


def test_a_service_that_somebody_starts_in_llm_is_stopped_at_the_next_tick(machine):
    """Fault 61."""
    tick(machine)
    machine.services.running.add("whisper")
    report = tick(machine)
    assert report.transition.cause is Cause.SERVICE_RUNS
    go_to(machine, Phase.LLM)
    assert machine.services.running == set()
    assert machine.store.read().state.failures == 0


def test_pending_for_long_is_the_same_request_every_tick(engine, machine):
    """Fault 27: no growing backoff, no second operation, and a release gets out of it."""
    add_recording(engine)
    go_to(machine, Phase.ACQUIRING)
    machine.broker.answers["acquire"] = Pending()
    for _ in range(50):
        tick(machine)
    state = machine.store.read().state
    assert (state.phase, state.failures, state.retry_after) == (Phase.ACQUIRING, 0, None)
    machine.store.record_request(RequestKind.RELEASE, "op")
    calls = len(machine.broker.calls)
    tick(machine)
    assert machine.store.read().state.phase is Phase.RELEASING
    assert len(machine.broker.calls) == calls, "on release: no call"


def test_no_transaction_is_open_during_any_call(engine, machine, monkeypatch):
    """Fault 39: looked at from inside every call of a whole turn."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
    )
    looked = []

    def watched(original):
        def call(*args):
            with engine.begin() as connection:
                looked.append(connection.execute(text(query)).scalar_one())
            return original(*args)

        return call

    for part in (machine.broker, machine.services, machine.language_model):
        for name in ("acquire", "renew", "release", "status", "inspect", "health", "start", "stop", "probe"):
            if hasattr(part, name):
                monkeypatch.setattr(part, name, watched(getattr(part, name)))
    add_recording(engine)
    go_to(machine, Phase.AUDIO)
    machine.store.record_request(RequestKind.RELEASE, "op")
    go_to(machine, Phase.DRAINING)
    machine.store.record_request(RequestKind.RELEASE, "op")
    go_to(machine, Phase.LLM)
    assert len(looked) > 15
    assert set(looked) == {0}


def test_the_twin_finds_an_open_transaction(engine):
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
    )
    with held_transaction(engine) as held:
        held.execute(text("SELECT 1"))
        with engine.begin() as connection:
            assert connection.execute(text(query)).scalar_one() == 1


def test_a_refusal_waits_as_long_as_it_asks_and_audio_now_does_not(engine, machine):
    add_recording(engine)
    go_to(machine, Phase.ACQUIRING)
    machine.broker.answers["acquire"] = Refused("someone-else", timedelta(hours=1))
    tick(machine)
    state = machine.store.read().state
    assert state.phase is Phase.LLM
    assert state.retry_after - state.phase_since == timedelta(hours=1)
    assert state.last_error == "the broker refused the GPU: someone-else holds it; it asks to wait 3600 s"
    for _ in range(3):
        tick(machine)
    assert machine.store.read().state.phase is Phase.LLM
    del machine.broker.answers["acquire"]
    machine.store.record_request(RequestKind.AUDIO_NOW, "op")
    go_to(machine, Phase.AUDIO)


def test_the_canonical_line_tells_the_tick(engine, machine):
    assert canonical(tick(machine)) | {"took_ms": 0} == {
        "outcome": "first",
        "cause": "first_tick",
        "moved_to": "llm",
        "took_ms": 0,
    }
    add_recording(engine)
    assert canonical(tick(machine)) | {"took_ms": 0} == {
        "outcome": "saved",
        "phase": "llm",
        "calls": "probe_llm,inspect,status",
        "cause": "work_waits",
        "moved_to": "draining_post",
        "took_ms": 0,
    }
