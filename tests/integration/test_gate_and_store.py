"""The gate and the stored row against a real database: nothing is lost, nothing runs twice, nothing slips past a drain."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from held_transaction import held_transaction
from phase_world import STAGES
from queued_run import add_run
from sqlalchemy import text

from voxint.gpu_phase.gate import Gate
from voxint.gpu_phase.model import Cause, Cut, Lane, Phase, RequestKind, RequestOutcome, Transition
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import TICK_LOCK, PhaseStore

GRACE = timedelta(seconds=60)
POLICY = Policy()
IDLE_IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
)
ADVISORY_LOCKS = (
    "FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def store(engine):
    return PhaseStore(engine, STAGES, grace=GRACE, attempts=3)


@pytest.fixture
def gate(engine):
    return make_gate(engine)


def make_gate(engine, policy=POLICY, **more):
    return Gate(engine, policy, STAGES, worker="test", grace=GRACE, attempts=3, **more)


def set_phase(engine, phase, **columns):
    values = {"lease_id": "b7c1" if phase in {"starting_services", "audio", "draining"} else None} | columns
    listed = ", ".join(f"{name} = :{name}" for name in values)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase (phase, phase_since, ticked_at) VALUES ('llm', voxint_now(), voxint_now())"
                " ON CONFLICT DO NOTHING"
            )
        )
        connection.execute(
            text(f"UPDATE gpu_phase SET phase = :phase, {listed}, version = version + 1"), {"phase": phase} | values
        )


def rows(engine, query, **values):
    with engine.begin() as connection:
        return connection.execute(text(query), values).all()


def shift_clock(engine, seconds):
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
            )
        )


def test_no_row_keeps_both_lanes_closed(engine, gate):
    add_run(engine)
    add_run(engine, "enhance_match", "post")
    assert gate.claim(Lane.GPU) is None
    assert gate.claim(Lane.POST) is None


def test_with_sharing_off_both_lanes_are_open_without_a_row(engine):
    add_run(engine)
    gate = make_gate(engine, replace(POLICY, enabled=False))
    claim = gate.claim(Lane.GPU)
    assert claim is not None
    assert gate.complete(claim, {"x": 1})
    assert rows(engine, "SELECT kind, state, begun FROM work_item ORDER BY id") == [
        ("acquire", "done", True),
        ("prepare", "queued", True),
    ]


def test_a_run_goes_through_its_stages_and_is_done(engine, gate):
    run_id = add_run(engine)
    set_phase(engine, "audio")
    for kind in ("acquire", "prepare", "transcribe", "diarize_embed"):
        claim = gate.claim(Lane.GPU)
        assert claim.kind == kind
        assert gate.complete(claim, {"stage": kind})
    assert gate.claim(Lane.GPU) is None
    assert rows(engine, "SELECT status, stage FROM run") == [("queued", "enhance_match")]
    set_phase(engine, "llm", lease_id=None, llm_ready=True)
    with engine.begin() as connection:
        connection.execute(text("UPDATE gpu_phase SET llm_checked_at = voxint_now()"))
    for _ in range(2):
        assert gate.complete(gate.claim(Lane.POST), {})
    assert rows(engine, "SELECT status FROM run WHERE id = :id", id=run_id) == [("done",)]
    assert [row.kind for row in rows(engine, "SELECT kind FROM stage_result ORDER BY made_at")] == [
        name for name, _ in STAGES.stages
    ]
    assert {row.outcome for row in rows(engine, "SELECT outcome FROM stage_execution")} == {"done"}


def test_a_stale_answer_of_the_language_model_closes_the_post_lane(engine, gate):
    add_run(engine, "enhance_match", "post")
    set_phase(engine, "llm", llm_ready=True)
    with engine.begin() as connection:
        connection.execute(text("UPDATE gpu_phase SET llm_checked_at = voxint_now() - interval '91 seconds'"))
    assert gate.claim(Lane.POST) is None


def test_an_expired_lease_closes_the_gpu_lane_and_its_drain(engine, gate):
    add_run(engine, begun=True)
    set_phase(engine, "audio")
    with engine.begin() as connection:
        connection.execute(text("UPDATE gpu_phase SET lease_expires_at = voxint_now() - interval '1 second'"))
    assert gate.claim(Lane.GPU) is None
    with engine.begin() as connection:
        connection.execute(text("UPDATE gpu_phase SET phase = 'draining'"))
    assert gate.claim(Lane.GPU) is None


def test_draining_lets_begun_segments_go_on_and_keeps_new_ones_out(engine, gate):
    add_run(engine)
    begun = add_run(engine, "transcribe", begun=True)
    set_phase(engine, "draining")
    claim = gate.claim(Lane.GPU)
    assert claim.run_id == begun
    assert gate.complete(claim, {})
    assert gate.claim(Lane.GPU).kind == "diarize_embed"
    assert gate.claim(Lane.GPU) is None


def test_a_begun_segment_that_nobody_takes_up_stops_holding_a_drain(engine, store, gate):
    add_run(engine, "transcribe", begun=True)
    set_phase(engine, "draining")
    assert store.load().work.gpu_in_progress
    shift_clock(engine, 61)
    assert not store.load().work.gpu_in_progress
    assert gate.claim(Lane.GPU) is None, "what is not counted may not be claimed"


def test_work_that_waited_its_turn_behind_another_keeps_its_segment(engine, store):
    """Whisper takes one at a time: the second recording waits longer than the grace, and is still counted."""
    gate = make_gate(engine, capacity={"transcribe": 1})
    add_run(engine, "transcribe", begun=True)
    second = add_run(engine, "transcribe", begun=True)
    set_phase(engine, "draining")
    claim = gate.claim(Lane.GPU)
    assert gate.claim(Lane.GPU) is None
    shift_clock(engine, 3600)
    gate.beat(claim)
    assert gate.complete(claim, {})
    assert store.load().work.gpu_in_progress
    assert gate.claim(Lane.GPU).run_id in {second, claim.run_id}


def test_a_clock_that_was_set_back_does_not_keep_the_work_of_the_dead(engine, gate):
    add_run(engine)
    add_run(engine)
    shift_clock(engine, 86_400)
    set_phase(engine, "audio")
    dead, alive = gate.claim(Lane.GPU), gate.claim(Lane.GPU)
    shift_clock(engine, 0)
    assert gate.reap() == 0, "whoever has not beaten yet is not dead"
    assert rows(engine, "SELECT 1 FROM work_item WHERE heartbeat_at > voxint_now()") == []
    shift_clock(engine, 59)
    assert gate.beat(alive)
    assert gate.reap() == 0
    shift_clock(engine, 61)
    assert gate.reap() == 1
    assert not gate.beat(dead)
    assert gate.beat(alive)


def test_the_dead_give_their_work_back_and_the_living_keep_it(engine, gate):
    add_run(engine)
    add_run(engine)
    set_phase(engine, "audio")
    dead, alive = gate.claim(Lane.GPU), gate.claim(Lane.GPU)
    shift_clock(engine, 59)
    assert gate.beat(alive)
    assert gate.reap() == 0
    shift_clock(engine, 61)
    assert gate.reap() == 1
    assert not gate.beat(dead)
    assert not gate.complete(dead, {"late": True})
    assert gate.beat(alive)
    again = gate.claim(Lane.GPU)
    assert (again.item_id, again.attempt) == (dead.item_id, 2)
    assert rows(engine, "SELECT count(*) FROM stage_result") == [(0,)]


def test_a_recording_that_kills_its_worker_three_times_fails_in_words_and_others_go_on(engine, gate):
    killer = add_run(engine)
    other = add_run(engine)
    set_phase(engine, "audio")
    for n in range(3):
        claim = gate.claim(Lane.GPU)
        assert (claim.run_id, claim.attempt) == (killer, n + 1)
        shift_clock(engine, 100 * (n + 1))
        assert gate.reap() == 1
    assert rows(engine, "SELECT status, error FROM run WHERE id = :id", id=killer) == [
        ("failed", "acquire: the worker died 3 times while it worked on this recording")
    ]
    assert gate.claim(Lane.GPU).run_id == other


def test_not_now_uses_no_attempt_and_waits(engine, gate):
    add_run(engine, "transcribe", begun=True)
    set_phase(engine, "audio")
    for n in range(10):
        claim = gate.claim(Lane.GPU)
        assert claim.attempt == 1
        assert gate.not_now(claim, "whisper: connection refused", timedelta(seconds=10))
        assert gate.claim(Lane.GPU) is None
        shift_clock(engine, 11 * (n + 1))
    assert rows(engine, "SELECT state, attempts FROM work_item") == [("queued", 0)]
    assert rows(engine, "SELECT DISTINCT status, error FROM run") == [("queued", None)]


def test_failed_attempts_are_used_up_and_a_lasting_failure_at_once(engine, gate):
    first, second = add_run(engine), add_run(engine)
    set_phase(engine, "audio")
    for n in range(3):
        claim = gate.claim(Lane.GPU)
        assert (claim.run_id, claim.attempt) == (first, n + 1)
        assert gate.fail(claim, "acquire: disk full")
        shift_clock(engine, 20 * (n + 1))
    claim = gate.claim(Lane.GPU)
    assert claim.run_id == second
    assert gate.fail(claim, "acquire: no audio track", for_good=True)
    assert rows(engine, "SELECT status, error FROM run ORDER BY id") == [
        ("failed", "acquire: disk full"),
        ("failed", "acquire: no audio track"),
    ]


def test_two_workers_never_get_the_same_work(engine):
    for _ in range(60):
        add_run(engine)
    set_phase(engine, "audio")
    got, lock = [], threading.Lock()

    def work():
        gate = make_gate(engine)
        while (claim := gate.claim(Lane.GPU)) is not None and claim.kind == "acquire":
            with lock:
                got.append(claim.item_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 60
    assert len(set(got)) == 60


def test_a_paused_queue_is_no_demand_and_begins_nothing(engine, store, gate):
    add_run(engine)
    begun = add_run(engine, "transcribe", begun=True)
    set_phase(engine, "audio")
    store.set_paused(paused=True, by="test")
    assert not store.load().work.gpu_queued
    assert gate.claim(Lane.GPU).run_id == begun
    assert gate.claim(Lane.GPU) is None
    store.set_paused(paused=False, by="test")
    assert store.load().work.gpu_queued
    assert gate.claim(Lane.GPU) is not None


# --- the row --------------------------------------------------------------------------------------------------------


def step(state, phase, now, **changes):
    return Transition(state, replace(state, phase=phase, phase_since=now, **changes), Cause.DRAINED)


def test_the_first_row_is_written_once(engine, store):
    made = []
    threads = [threading.Thread(target=lambda: made.append(store.begin())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(event is not None for event in made) == 1
    assert store.read().state.phase is Phase.LLM
    assert [event.cause for event in store.events(store.now() - timedelta(hours=1))] == [Cause.FIRST_TICK]


def test_a_save_over_a_changed_row_is_thrown_away(engine, store):
    set_phase(engine, "audio")
    loaded = store.load()
    set_phase(engine, "draining")
    assert not store.save(loaded.stored, step(loaded.stored.state, Phase.LLM, loaded.now, lease_id=None), None)
    assert store.read().state.phase is Phase.DRAINING
    assert store.events(loaded.now - timedelta(hours=1)) == []


def test_a_claim_that_came_between_count_and_save_throws_the_step_away(engine, store, gate):
    """Fault 22: counted zero, then a stage starts, then the save. Never a model call after the stop began."""
    add_run(engine, "transcribe", begun=True)
    set_phase(engine, "draining")
    shift_clock(engine, 61)
    loaded = store.load()
    assert not loaded.work.gpu_in_progress
    shift_clock(engine, 0)
    claim = gate.claim(Lane.GPU)
    assert claim is not None
    move = replace(step(loaded.stored.state, Phase.STOPPING_SERVICES, loaded.now), drained=Lane.GPU)
    assert not store.save(loaded.stored, move, None)
    assert store.read().state.phase is Phase.DRAINING
    # The twin: without the second look the same save goes through, with the stage running.
    assert store.save(loaded.stored, replace(move, drained=None), None)


def test_a_claim_waits_for_the_save_in_flight_and_then_sees_the_closed_lane(engine, store, gate):
    add_run(engine)
    set_phase(engine, "audio")
    result = []
    with held_transaction(engine) as connection:
        connection.execute(text("UPDATE gpu_phase SET phase = 'draining', version = version + 1"))
        thread = threading.Thread(target=lambda: result.append(gate.claim(Lane.GPU)))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "the claim must wait for the row"
    thread.join()
    assert result == [None]


def test_a_forced_release_puts_running_work_back_without_an_attempt(engine, store, gate):
    add_run(engine, "transcribe", begun=True)
    add_run(engine, "diarize_embed", begun=True)
    set_phase(engine, "draining")
    claims = [gate.claim(Lane.GPU), gate.claim(Lane.GPU)]
    loaded = store.load()
    move = replace(step(loaded.stored.state, Phase.STOPPING_SERVICES, loaded.now), cut=Cut())
    assert store.save(loaded.stored, move, None)
    assert not any(gate.beat(claim) for claim in claims)
    assert rows(engine, "SELECT state, attempts, begun FROM work_item") == [("queued", 0, False)] * 2
    assert {row.outcome for row in rows(engine, "SELECT outcome FROM stage_execution")} == {"cut"}


def test_only_the_stage_in_the_stopped_service_uses_an_attempt(engine, store, gate):
    add_run(engine, "transcribe", begun=True)
    add_run(engine, "diarize_embed", begun=True)
    set_phase(engine, "audio")
    gate.claim(Lane.GPU)
    gate.claim(Lane.GPU)
    loaded = store.load()
    cut = Cut(frozenset({"whisper"}))
    assert store.save(
        loaded.stored, replace(step(loaded.stored.state, Phase.STOPPING_SERVICES, loaded.now), cut=cut), None
    )
    assert rows(engine, "SELECT kind, attempts FROM work_item ORDER BY id") == [
        ("transcribe", 1),
        ("diarize_embed", 0),
    ]


def test_a_request_survives_the_tick_that_did_not_see_it(engine, store):
    """Fault 37: recorded while a tick waits for the broker; the tick's save neither loses nor answers it."""
    set_phase(engine, "audio")
    ticked = store.read().ticked_at
    loaded = store.load()
    request = store.record_request(RequestKind.RELEASE, "op")
    assert request.made_in is Phase.AUDIO
    assert store.read().ticked_at == ticked, "recording a request is no tick"
    assert store.save(loaded.stored, Transition(loaded.stored.state, loaded.stored.state, Cause.WORKING), None)
    assert store.load().request.id == request.id


def test_a_newer_request_supersedes_and_outlives_the_one_that_is_answered(engine, store):
    set_phase(engine, "llm")
    first = store.record_request(RequestKind.AUDIO_NOW, "a")
    loaded = store.load()
    second = store.record_request(RequestKind.RELEASE, "b")
    answered = Transition(loaded.stored.state, loaded.stored.state, Cause.IDLE, request=RequestOutcome.ACTED)
    assert store.save(loaded.stored, answered, loaded.request)
    assert store.request_outcome(first.id) is RequestOutcome.SUPERSEDED
    assert store.pending_request().id == second.id


def test_a_request_needs_no_row(engine, store):
    request = store.record_request(RequestKind.AUDIO_NOW, "op")
    assert request.made_in is None
    assert store.read() is None
    assert store.load().request.id == request.id


def test_one_tick_at_a_time_and_no_lock_left_behind(engine, store):
    """Fault 38: the lock is gone with its connection, also when the tick raises."""
    with store.sole_tick() as first, store.sole_tick() as second:
        assert (first, second) == (True, False)

    def broken_tick():
        with store.sole_tick() as sole:
            assert sole
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_tick()
    held = f"SELECT count(*) {ADVISORY_LOCKS}"
    assert rows(engine, held) == [(0,)]
    with store.sole_tick() as sole:
        assert sole
        assert rows(engine, IDLE_IN_TRANSACTION) == [(0,)]


def test_a_tick_that_follows_at_once_is_never_told_that_the_last_one_is_at_work(store):
    """The lock is let go before the connection is closed, which the server notices in its own time."""
    for _ in range(50):
        with store.sole_tick() as sole:
            assert sole


def test_a_connection_that_was_cut_under_a_tick_costs_nothing_but_its_lock(engine, store):
    with store.sole_tick() as sole:
        assert sole
        with engine.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key"
                ),
                {"key": TICK_LOCK},
            )
        with store.sole_tick() as other:
            assert other, "the lock went with its connection"
    with store.sole_tick() as sole:
        assert sole


def test_a_step_is_written_with_its_event(engine, store):
    add_run(engine)
    set_phase(engine, "audio")
    loaded = store.load()
    failing = step(
        loaded.stored.state, Phase.STOPPING_SERVICES, loaded.now, failures=1, last_error="the lease was lost"
    )
    assert store.save(loaded.stored, failing, None)
    (event,) = store.events(loaded.now - timedelta(hours=1))
    assert (event.from_phase, event.to_phase, event.cause) == (Phase.AUDIO, Phase.STOPPING_SERVICES, Cause.DRAINED)
    assert (event.reason, event.lease_id, event.gpu_waiting, event.gpu_running) == ("the lease was lost", "b7c1", 1, 0)
    assert event.seconds >= 0
