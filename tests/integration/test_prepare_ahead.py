"""GPU_PHASE_PREPARE_AHEAD: taking media in and decoding it goes on while the GPU lane is closed, and is no demand for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from phase_world import STAGES
from queued_run import add_run
from sqlalchemy import text

from voxint.gpu_phase.gate import Gate
from voxint.gpu_phase.model import Cause, Cut, Lane, Phase, Transition
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.status import read
from voxint.gpu_phase.store import PhaseStore
from voxint.settings import load_settings
from voxint.wiring import Parts

GRACE = timedelta(seconds=60)
AHEAD = replace(STAGES, ahead=frozenset({"acquire", "prepare"}))
CLOSED = (
    "llm",
    "draining_post",
    "acquiring",
    "starting_services",
    "draining",
    "stopping_services",
    "releasing",
    "error",
)


def make_gate(engine, stages=AHEAD, policy=None, **more):
    return Gate(engine, policy or Policy(), stages, worker="test", grace=GRACE, attempts=3, **more)


@pytest.fixture
def gate(engine):
    return make_gate(engine)


@pytest.fixture
def store(engine):
    return PhaseStore(engine, AHEAD, grace=GRACE, attempts=3)


def set_phase(engine, phase):
    lease = "b7c1" if phase in {"starting_services", "audio", "draining"} else None
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase (phase, phase_since, ticked_at) VALUES ('llm', voxint_now(), voxint_now())"
                " ON CONFLICT DO NOTHING"
            )
        )
        connection.execute(
            text("UPDATE gpu_phase SET phase = :phase, lease_id = :lease, version = version + 1"),
            {"phase": phase, "lease": lease},
        )


def row(engine, query, **values):
    with engine.begin() as connection:
        return connection.execute(text(query), values).one()


def waits(store):
    """What people are shown of the GPU lane, and what the wake-ups are counted by: (waiting, running)."""
    view = read(store.rows, Policy(ahead=AHEAD.ahead))
    depths = store.depths(bound=10)
    assert (view.gpu_lane.waiting, view.gpu_lane.running) == (depths.gpu_waiting, depths.gpu_running)
    return depths.gpu_waiting, depths.gpu_running


@pytest.mark.parametrize("phase", CLOSED)
def test_a_recording_is_taken_in_and_decoded_in_every_phase_and_no_further(engine, gate, phase):
    set_phase(engine, phase)
    run = add_run(engine)
    for kind in ("acquire", "prepare"):
        claim = gate.claim(Lane.GPU)
        assert (claim.run_id, claim.kind) == (run, kind)
        assert gate.complete(claim, {})
    assert gate.claim(Lane.GPU) is None
    assert row(engine, "SELECT status, stage FROM run") == ("queued", "transcribe")
    assert gate.due(Lane.GPU) is None


@pytest.mark.parametrize("phase", CLOSED)
def test_without_the_setting_nothing_begins_in_a_closed_lane(engine, phase):
    set_phase(engine, phase)
    add_run(engine)
    plain = make_gate(engine, STAGES)
    assert plain.claim(Lane.GPU) is None
    assert plain.due(Lane.GPU) is None


def test_what_needs_no_gpu_is_no_demand_until_it_is_decoded(engine, gate, store):
    set_phase(engine, "llm")
    add_run(engine)
    for _ in range(2):
        assert not store.load().work.gpu_queued
        assert waits(store) == (0, 0)
        claim = gate.claim(Lane.GPU)
        assert not store.load().work.gpu_queued
        gate.complete(claim, {})
    assert store.load().work.gpu_queued
    assert waits(store) == (1, 0)


def test_a_drain_waits_for_the_gpus_work_alone(engine, gate, store):
    set_phase(engine, "audio")
    ahead = add_run(engine)
    heard = add_run(engine, "transcribe")
    first, second = gate.claim(Lane.GPU), gate.claim(Lane.GPU)
    assert [(first.run_id, first.kind), (second.run_id, second.kind)] == [(heard, "transcribe"), (ahead, "acquire")]
    set_phase(engine, "draining")
    assert store.load().work.gpu_in_progress
    gate.complete(first, {})
    diarize = gate.claim(Lane.GPU)
    assert (diarize.run_id, diarize.kind) == (heard, "diarize_embed")
    gate.complete(diarize, {})
    assert not store.load().work.gpu_in_progress, "the recording that is only taken in holds the GPU"
    gate.complete(second, {})
    gate.complete(gate.claim(Lane.GPU), {})
    assert gate.claim(Lane.GPU) is None, (
        "what was decoded ahead has not begun its segment: it waits for the next window"
    )
    assert not store.load().work.gpu_in_progress


def test_a_lost_gpu_does_not_cut_what_needs_none(engine, gate, store):
    set_phase(engine, "audio")
    add_run(engine, "transcribe")
    add_run(engine)
    heard, ahead = gate.claim(Lane.GPU), gate.claim(Lane.GPU)
    stored = store.read()
    after = replace(stored.state, phase=Phase.STOPPING_SERVICES, lease_lost=True)
    cut = Transition(stored.state, after, Cause.LEASE_LOST, cut=Cut(frozenset()))
    assert store.save(stored, cut, None)
    assert not gate.beat(heard)
    assert gate.beat(ahead)
    assert gate.complete(ahead, {})
    assert gate.claim(Lane.GPU).kind == "prepare"


def test_in_an_open_lane_the_gpus_work_comes_first(engine):
    gate = make_gate(engine, capacity={"transcribe": 1, "diarize_embed": 1})
    set_phase(engine, "audio")
    early = add_run(engine)
    late = add_run(engine, "transcribe")
    assert gate.claim(Lane.GPU).run_id == late
    assert gate.claim(Lane.GPU).run_id == early


def test_a_paused_queue_begins_nothing_ahead_and_ends_what_has_begun(engine, gate, store):
    set_phase(engine, "llm")
    begun = add_run(engine)
    gate.complete(gate.claim(Lane.GPU), {})
    add_run(engine)
    store.set_paused(paused=True, by="test")
    claim = gate.claim(Lane.GPU)
    assert (claim.run_id, claim.kind) == (begun, "prepare")
    gate.complete(claim, {})
    assert gate.claim(Lane.GPU) is None
    assert gate.due(Lane.GPU) is None
    store.set_paused(paused=False, by="test")
    assert gate.due(Lane.GPU) == timedelta(0)


def test_a_failed_attempt_ahead_comes_up_by_itself(engine, gate):
    set_phase(engine, "llm")
    add_run(engine)
    gate.fail(gate.claim(Lane.GPU), "the connection broke")
    assert gate.claim(Lane.GPU) is None
    assert timedelta(0) < gate.due(Lane.GPU) <= timedelta(seconds=5)


def test_switching_it_off_again_strands_nothing(engine, gate):
    """What was decoded ahead, and what is being decoded, goes on in the lane like everything else."""
    set_phase(engine, "llm")
    decoded = add_run(engine)
    for _ in range(2):
        gate.complete(gate.claim(Lane.GPU), {})
    half = add_run(engine)
    gate.complete(gate.claim(Lane.GPU), {})
    plain = make_gate(engine, STAGES)
    assert plain.claim(Lane.GPU) is None
    set_phase(engine, "audio")
    taken = [plain.claim(Lane.GPU) for _ in range(2)]
    assert {(each.run_id, each.kind) for each in taken} == {(decoded, "transcribe"), (half, "prepare")}


@pytest.mark.parametrize(
    ("sharing", "setting", "ahead"), [(True, "true", True), (True, "", False), (False, "true", False)]
)
def test_the_setting_is_off_by_default_and_counts_with_sharing_on(sharing, setting, ahead):
    urls = {f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/{name}" for name in ("ACQUIRE", "RELEASE", "STATUS")}
    environ = {"COMPUTE_TIER": "simulated", "GPU_PHASE_PREPARE_AHEAD": setting}
    parts = Parts(load_settings(environ | ({"GPU_PHASE_ENABLED": "true", **urls} if sharing else {})))
    assert parts.stages.ahead == parts.settings.policy.ahead
    assert parts.stages.ahead == (frozenset({"acquire", "prepare"}) if ahead else frozenset())
