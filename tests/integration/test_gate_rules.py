"""What the gate writes, column by column, at moments of a clock that stands still: `make mutants` counts on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from held_transaction import held_transaction
from phase_world import STAGES
from sqlalchemy import text

from voxint.gpu_phase.door import LONGEST_WAIT
from voxint.gpu_phase.gate import Claim, Gate
from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.policy import Policy

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
GRACE = timedelta(seconds=60)
ON = Policy()
OFF = replace(ON, enabled=False)
TICK = timedelta(microseconds=1)
ITEM = (
    "kind, lane, state, begun, attempts, queued_at, waiting_since, not_before, claim_token, claimed_by, claimed_at,"
    " heartbeat_at, progress, error, finished_at"
)


class Desk:
    """A gate on a database whose clock stands still."""

    def __init__(self, engine):
        self.engine = engine
        self.gate = self.make(ON)

    def make(self, policy=ON, **more):
        return Gate(self.engine, policy, STAGES, worker="host:7", grace=GRACE, attempts=3, **more)

    def write(self, statement, **values):
        with self.engine.begin() as connection:
            return connection.execute(text(statement), values)

    def rows(self, query, **values):
        with self.engine.begin() as connection:
            return [dict(row._mapping) for row in connection.execute(text(query), values)]

    def row(self, query, **values):
        (found,) = self.rows(query, **values)
        return found

    def clock(self, moment):
        self.write(
            "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
            f" AS $$ SELECT timestamptz '{moment.isoformat()}' $$"
        )

    def phase(self, phase, **columns):
        leased = phase in {"audio", "draining"}
        values = {"lease_id": "b7c1" if leased else None, "llm_ready": phase == "llm"} | columns
        values["llm_checked_at"] = NOON if values["llm_ready"] else None
        self.write("DELETE FROM gpu_phase")
        self.write(
            "INSERT INTO gpu_phase (phase, phase_since, lease_id, llm_ready, llm_checked_at)"
            " VALUES (:phase, :since, :lease_id, :llm_ready, :llm_checked_at)",
            phase=phase,
            since=NOON,
            **values,
        )

    def add(self, kind="acquire", lane="gpu", *, run_id=None, **columns):
        if run_id is None:
            run_id = self.write(
                "INSERT INTO run (title, source, source_kind, folder, created_at, stage, error)"
                " VALUES ('t', 's', 'file', 'f', :now, :stage, 'an older error') RETURNING id",
                now=NOON,
                stage=kind if kind != "run_assets" else "finalize",
            ).scalar_one()
        values = {"queued_at": NOON, "waiting_since": NOON} | columns | {"run_id": run_id, "kind": kind, "lane": lane}
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        item = self.write(f"INSERT INTO work_item ({names}) VALUES ({marks}) RETURNING id", **values).scalar_one()
        return run_id, item

    def running(self, kind="transcribe", lane="gpu", attempts=1, **columns):
        """A claim that was made ten seconds ago."""
        early = NOON - timedelta(seconds=10)
        run_id, item = self.add(
            kind,
            lane,
            begun=True,
            state="running",
            attempts=attempts,
            claim_token=f"token-{len(self.rows('SELECT 1 FROM work_item'))}",
            claimed_by="host:7",
            claimed_at=early,
            heartbeat_at=early,
            progress=0.25,
            waiting_since=early,
            **columns,
        )
        token = self.row("SELECT claim_token FROM work_item WHERE id = :id", id=item)["claim_token"]
        self.write("UPDATE run SET status = 'running' WHERE id = :id", id=run_id)
        self.write(
            "INSERT INTO stage_execution (work_item_id, run_id, kind, attempt, claim_token, worker, started_at)"
            " VALUES (:item, :run, :kind, :attempt, :token, 'host:7', :early)",
            item=item,
            run=run_id,
            kind=kind,
            attempt=attempts,
            token=token,
            early=early,
        )
        return Claim(item, run_id, kind, Lane(lane), attempts, token)

    def item(self, item_id):
        return self.row(f"SELECT {ITEM} FROM work_item WHERE id = :id", id=item_id)

    def run(self, run_id):
        return self.row("SELECT status, stage, error, finished_at FROM run WHERE id = :id", id=run_id)

    def execution(self, token):
        return self.row(
            "SELECT run_id, work_item_id, kind, attempt, worker, started_at, ended_at, outcome, detail"
            " FROM stage_execution WHERE claim_token = :token",
            token=token,
        )


@pytest.fixture
def desk(engine):
    made = Desk(engine)
    made.clock(NOON)
    return made


def test_a_claim_writes_who_has_what_since_when(desk):
    desk.phase("audio")
    run_id, item = desk.add("prepare", progress=0.5, error="an older reason", attempts=1)
    claim = desk.gate.claim(Lane.GPU)
    assert claim == Claim(item, run_id, "prepare", Lane.GPU, 2, claim.token)
    assert len(claim.token) == 16
    assert desk.item(item) == {
        "kind": "prepare",
        "lane": "gpu",
        "state": "running",
        "begun": True,
        "attempts": 2,
        "queued_at": NOON,
        "waiting_since": NOON,
        "not_before": None,
        "claim_token": claim.token,
        "claimed_by": "host:7",
        "claimed_at": NOON,
        "heartbeat_at": NOON,
        "progress": None,
        "error": None,
        "finished_at": None,
    }
    assert desk.run(run_id) == {"status": "running", "stage": "prepare", "error": None, "finished_at": None}
    assert desk.execution(claim.token) == {
        "run_id": run_id,
        "work_item_id": item,
        "kind": "prepare",
        "attempt": 2,
        "worker": "host:7",
        "started_at": NOON,
        "ended_at": None,
        "outcome": None,
        "detail": None,
    }


def test_a_claim_of_a_stage_names_it_in_the_run(desk):
    desk.phase("audio")
    run_id, _ = desk.add("transcribe")
    desk.write("UPDATE run SET stage = 'acquire'")
    desk.gate.claim(Lane.GPU)
    assert desk.run(run_id)["stage"] == "transcribe"


def test_a_claim_touches_its_own_run_and_item_alone(desk):
    desk.phase("audio")
    desk.add()
    other_run, other_item = desk.add()
    before = desk.item(other_item), desk.run(other_run)
    desk.gate.claim(Lane.GPU)
    assert (desk.item(other_item), desk.run(other_run)) == before


def test_a_job_leaves_its_run_as_it_is(desk):
    desk.phase("llm")
    run_id, item = desk.add("run_assets", "post")
    before = desk.run(run_id)
    claim = desk.gate.claim(Lane.POST)
    assert claim == Claim(item, run_id, "run_assets", Lane.POST, 1, claim.token)
    assert desk.run(run_id) == before
    assert desk.gate.complete(claim, {"words": 3})
    assert desk.run(run_id) == before
    assert desk.item(item)["state"] == "done"
    assert len(desk.rows("SELECT 1 FROM work_item")) == 1
    assert desk.row("SELECT data FROM stage_result") == {"data": {"words": 3}}


def test_the_oldest_comes_first_and_begun_work_before_it(desk):
    desk.phase("audio")
    first, second = desk.add()[1], desk.add()[1]
    # Long past its grace: in an open lane that does not matter.
    begun = desk.add("transcribe", begun=True, waiting_since=NOON - timedelta(hours=5))[1]
    desk.add("enhance_match", "post")
    assert [desk.gate.claim(Lane.GPU).item_id for _ in range(3)] == [begun, first, second]
    assert desk.gate.claim(Lane.GPU) is None


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_what_has_ended_is_not_claimed(desk, state):
    desk.phase("audio")
    desk.add(state=state, finished_at=NOON)
    desk.add("prepare", state=state, begun=True, finished_at=NOON)
    assert desk.gate.claim(Lane.GPU) is None
    desk.phase("draining")
    assert desk.gate.claim(Lane.GPU) is None


def test_work_that_waits_is_claimed_from_its_moment_on(desk):
    desk.phase("audio")
    desk.add(not_before=NOON + TICK)
    assert desk.gate.claim(Lane.GPU) is None
    desk.clock(NOON + TICK)
    assert desk.gate.claim(Lane.GPU) is not None


def test_work_does_not_wait_for_a_clock_that_was_set_back(desk):
    desk.phase("audio")
    desk.add()
    claim = desk.gate.claim(Lane.GPU)
    assert desk.gate.not_now(claim, "whisper: busy", timedelta(days=2))
    assert desk.row("SELECT not_before FROM work_item") == {"not_before": NOON + LONGEST_WAIT}
    # Set back by less than the longest wait, it may be the wait that was asked for.
    desk.clock(NOON - LONGEST_WAIT)
    assert desk.gate.claim(Lane.GPU) is None
    desk.clock(NOON - LONGEST_WAIT - timedelta(seconds=1))
    assert desk.gate.claim(Lane.GPU) is not None


def test_a_kind_that_is_full_is_passed_over(desk):
    desk.phase("audio")
    gate = desk.make(capacity={"transcribe": 2})
    for _ in range(3):
        desk.add("transcribe", begun=True)
    other = desk.add("diarize_embed")[1]
    assert [gate.claim(Lane.GPU).kind for _ in range(3)] == ["transcribe", "transcribe", "diarize_embed"]
    assert gate.claim(Lane.GPU) is None
    assert desk.item(other)["state"] == "running"
    # What has ended counts no longer.
    desk.write("UPDATE work_item SET state = 'done', claim_token = NULL WHERE kind = 'transcribe' AND id = 1")
    assert gate.claim(Lane.GPU).kind == "transcribe"


def test_without_a_bound_any_number_runs(desk):
    desk.phase("audio")
    gate = desk.make(capacity={"diarize_embed": 1})
    for _ in range(4):
        desk.add("transcribe")
    assert all(gate.claim(Lane.GPU) for _ in range(4))


@pytest.mark.parametrize(("waited", "taken"), [(GRACE - TICK, True), (GRACE, False)])
def test_a_drain_hands_out_begun_segments_within_their_grace(desk, waited, taken):
    desk.phase("draining")
    desk.add()
    desk.add("transcribe", begun=True, waiting_since=NOON - waited)
    assert (desk.gate.claim(Lane.GPU) is not None) == taken
    assert desk.gate.claim(Lane.GPU) is None


def test_each_lane_has_its_own_drain(desk):
    desk.add("transcribe", begun=True)
    desk.add("finalize", "post", begun=True)
    desk.phase("draining_post")
    assert desk.gate.claim(Lane.GPU) is None
    assert desk.gate.claim(Lane.POST).kind == "finalize"
    desk.phase("draining")
    assert desk.gate.claim(Lane.POST) is None
    assert desk.gate.claim(Lane.GPU).kind == "transcribe"


@pytest.mark.parametrize("phase", ["acquiring", "stopping_services", "releasing", "error"])
def test_between_the_lanes_nothing_is_handed_out(desk, phase):
    desk.phase(phase)
    desk.add("transcribe", begun=True)
    desk.add("finalize", "post", begun=True)
    assert desk.gate.claim(Lane.GPU) is None
    assert desk.gate.claim(Lane.POST) is None
    assert desk.gate.due(Lane.GPU) is None
    assert desk.gate.due(Lane.POST) is None


@pytest.mark.parametrize("policy", [ON, OFF])
def test_a_pause_keeps_new_recordings_out_and_nothing_else(desk, policy):
    gate = desk.make(policy)
    desk.add()
    begun = desk.add("prepare", begun=True)[1]
    late = desk.add("prepare", begun=True, waiting_since=NOON - GRACE)[1]
    desk.add("enhance_match", "post")
    desk.write("UPDATE work_control SET paused_at = :now, paused_by = 'op'", now=NOON)
    desk.phase("audio")
    assert gate.due(Lane.GPU) == timedelta(0)
    assert gate.claim(Lane.GPU).item_id == begun
    assert gate.claim(Lane.GPU) is None
    assert gate.due(Lane.GPU) is None
    desk.phase("llm")
    assert gate.claim(Lane.POST) is not None
    desk.write("UPDATE work_control SET paused_at = NULL, paused_by = NULL")
    desk.phase("audio")
    assert gate.claim(Lane.GPU).item_id == late


def test_without_sharing_no_row_is_needed(desk):
    desk.add()
    desk.add("finalize", "post")
    assert desk.gate.claim(Lane.GPU) is None
    assert desk.gate.claim(Lane.POST) is None
    off = desk.make(OFF)
    assert off.claim(Lane.GPU) is not None
    assert off.claim(Lane.POST) is not None


def test_a_heartbeat_writes_the_moment_and_the_progress(desk):
    claim, other = desk.running(), desk.running()
    untouched = desk.item(other.item_id)
    assert desk.gate.beat(claim)
    assert (desk.item(claim.item_id)["heartbeat_at"], desk.item(claim.item_id)["progress"]) == (NOON, 0.25)
    assert desk.gate.beat(claim, 0.0)
    assert desk.item(claim.item_id)["progress"] == 0.0
    assert desk.gate.beat(claim, 0.75)
    assert desk.item(claim.item_id)["progress"] == 0.75
    assert desk.item(other.item_id) == untouched


def test_the_end_of_a_stage_queues_the_next_one_of_its_segment(desk):
    desk.phase("audio")
    claim = desk.running("transcribe", error="an older reason")
    assert desk.gate.complete(claim, {"segments": []})
    ended = desk.item(claim.item_id)
    assert (ended["state"], ended["claim_token"], ended["progress"], ended["finished_at"]) == ("done", None, 1, NOON)
    assert desk.row("SELECT run_id, kind, data, made_at FROM stage_result") == {
        "run_id": claim.run_id,
        "kind": "transcribe",
        "data": {"segments": []},
        "made_at": NOON,
    }
    execution = desk.execution(claim.token)
    assert (execution["ended_at"], execution["outcome"], execution["detail"]) == (NOON, "done", None)
    (following,) = desk.rows(
        "SELECT id FROM work_item WHERE kind = 'diarize_embed' AND run_id = :run", run=claim.run_id
    )
    assert desk.item(following["id"]) == {
        "kind": "diarize_embed",
        "lane": "gpu",
        "state": "queued",
        "begun": True,
        "attempts": 0,
        "queued_at": NOON,
        "waiting_since": NOON,
        "not_before": None,
        "claim_token": None,
        "claimed_by": None,
        "claimed_at": None,
        "heartbeat_at": None,
        "progress": None,
        "error": None,
        "finished_at": None,
    }
    run = desk.run(claim.run_id)
    assert (run["status"], run["stage"], run["finished_at"]) == ("running", "diarize_embed", None)


def test_the_end_of_a_segment_queues_the_run_for_the_other_lane(desk):
    desk.phase("audio")
    claim = desk.running("diarize_embed")
    assert desk.gate.complete(claim, {})
    (following,) = desk.rows("SELECT lane, state, begun FROM work_item WHERE kind = 'enhance_match'")
    assert following == {"lane": "post", "state": "queued", "begun": False}
    assert (desk.run(claim.run_id)["status"], desk.run(claim.run_id)["stage"]) == ("queued", "enhance_match")


def test_the_end_of_the_last_stage_ends_the_run(desk):
    claim, other = desk.running("finalize", "post"), desk.running("finalize", "post")
    assert desk.gate.complete(claim, {})
    run = desk.run(claim.run_id)
    assert (run["status"], run["stage"], run["finished_at"]) == ("done", "finalize", NOON)
    assert len(desk.rows("SELECT 1 FROM work_item")) == 2
    assert desk.run(other.run_id)["status"] == "running"


def test_a_run_that_was_cancelled_under_its_last_stage_is_not_done(desk):
    claim = desk.running("finalize", "post")
    desk.write("UPDATE run SET status = 'cancelled'")
    assert desk.gate.complete(claim, {})
    assert (desk.run(claim.run_id)["status"], desk.run(claim.run_id)["finished_at"]) == ("cancelled", None)


def test_a_second_result_replaces_the_first(desk):
    claim = desk.running("transcribe")
    desk.write(
        "INSERT INTO stage_result (run_id, kind, data, made_at) VALUES (:run, 'transcribe', '{\"old\": 1}', :at)",
        run=claim.run_id,
        at=NOON - timedelta(days=1),
    )
    assert desk.gate.complete(claim, {"new": 2})
    assert desk.row("SELECT data, made_at FROM stage_result") == {"data": {"new": 2}, "made_at": NOON}


def waiting(desk):
    """A begun segment in each lane and one that has not begun, all waiting for half a minute."""
    long = NOON - timedelta(seconds=30)
    items = [
        desk.add("transcribe", begun=True, waiting_since=long)[1],
        desk.add("finalize", "post", begun=True, waiting_since=long)[1],
        desk.add(waiting_since=long)[1],
    ]
    return lambda: [desk.item(item)["waiting_since"] == NOON for item in items]


def test_an_end_gives_the_segments_that_waited_behind_it_a_fresh_grace(desk):
    claim = desk.running("transcribe")
    fresh = waiting(desk)
    assert fresh() == [False, False, False]
    assert desk.gate.complete(claim, {})
    assert fresh() == [True, False, False]


def test_an_end_waits_for_no_segment_that_another_has_in_his_hands(desk):
    """Two that end at the same moment, each with a row of the other's list in hand, would wait for ever: a deadlock."""
    claim = desk.running("transcribe")
    taken, free = desk.add("transcribe", begun=True)[1], desk.add("diarize_embed", begun=True)[1]
    desk.write("UPDATE work_item SET waiting_since = :early WHERE state = 'queued'", early=NOON - timedelta(seconds=30))
    with held_transaction(desk.engine) as connection:
        connection.execute(text("SELECT 1 FROM work_item WHERE id = :id FOR UPDATE"), {"id": taken})
        assert desk.gate.complete(claim, {}), "it would stand here until the other lets go"
        assert desk.item(free)["waiting_since"] == NOON
        assert desk.item(taken)["waiting_since"] == NOON - timedelta(seconds=30)


def test_a_failure_for_good_gives_them_one_too_and_a_passing_one_does_not(desk):
    fresh = waiting(desk)
    assert desk.gate.fail(desk.running("prepare"), "prepare: it broke")
    assert fresh() == [False, False, False]
    assert desk.gate.fail(desk.running("prepare"), "prepare: no audio track", for_good=True)
    assert fresh() == [True, False, False]


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_failed_attempt_waits_longer_each_time(desk, attempt):
    claim = desk.running(attempts=attempt)
    other = desk.running()
    untouched = desk.item(other.item_id), desk.run(other.run_id), desk.execution(other.token)
    assert desk.gate.fail(claim, "transcribe: it broke")
    assert desk.item(claim.item_id) == {
        "kind": "transcribe",
        "lane": "gpu",
        "state": "queued",
        "begun": True,
        "attempts": attempt,
        "queued_at": NOON,
        "waiting_since": NOON,
        "not_before": NOON + timedelta(seconds=5 * attempt),
        "claim_token": None,
        "claimed_by": None,
        "claimed_at": None,
        "heartbeat_at": None,
        "progress": None,
        "error": "transcribe: it broke",
        "finished_at": None,
    }
    execution = desk.execution(claim.token)
    assert (execution["ended_at"], execution["outcome"], execution["detail"]) == (
        NOON,
        "failed",
        "transcribe: it broke",
    )
    assert desk.run(claim.run_id)["status"] == "queued"
    assert (desk.item(other.item_id), desk.run(other.run_id), desk.execution(other.token)) == untouched


@pytest.mark.parametrize(("attempt", "for_good"), [(3, False), (4, False), (1, True)])
def test_the_last_attempt_and_a_lasting_failure_end_the_run(desk, attempt, for_good):
    claim = desk.running(attempts=attempt)
    assert desk.gate.fail(claim, "transcribe: it broke", for_good=for_good)
    item = desk.item(claim.item_id)
    assert (item["state"], item["error"], item["finished_at"]) == ("failed", "transcribe: it broke", NOON)
    assert (item["claim_token"], item["attempts"], item["not_before"]) == (None, attempt, None)
    run = desk.run(claim.run_id)
    assert (run["status"], run["error"], run["finished_at"]) == ("failed", "transcribe: it broke", NOON)
    execution = desk.execution(claim.token)
    assert (execution["ended_at"], execution["outcome"], execution["detail"]) == (
        NOON,
        "failed",
        "transcribe: it broke",
    )


def test_not_now_gives_the_attempt_back_and_lets_the_grace_run_on(desk):
    claim = desk.running(attempts=2)
    assert desk.gate.not_now(claim, "whisper: connection refused", timedelta(seconds=12))
    item = desk.item(claim.item_id)
    assert (item["state"], item["attempts"], item["error"]) == ("queued", 1, "whisper: connection refused")
    assert item["waiting_since"] == NOON - timedelta(seconds=10), "what is never there must not hold a drain for ever"
    assert item["not_before"] == NOON + timedelta(seconds=12)
    assert (item["claim_token"], item["heartbeat_at"], item["progress"]) == (None, None, None)
    execution = desk.execution(claim.token)
    assert (execution["ended_at"], execution["outcome"]) == (NOON, "not_now")
    assert execution["detail"] == "whisper: connection refused"
    assert desk.run(claim.run_id)["status"] == "queued"


def test_who_has_lost_his_claim_writes_nothing(desk):
    held = desk.running()
    desk.running()  # somebody else's, that a write without a condition would hit
    before = desk.rows(f"SELECT {ITEM} FROM work_item ORDER BY id")
    for lost in (replace(held, token="another"), replace(held, item_id=held.item_id + 1)):
        assert desk.gate.beat(lost, 0.9) is False
        assert desk.gate.complete(lost, {"late": True}) is False
        assert desk.gate.fail(lost, "late") is False
        assert desk.gate.fail(lost, "late", for_good=True) is False
        assert desk.gate.not_now(lost, "late", timedelta(seconds=1)) is False
    assert desk.rows(f"SELECT {ITEM} FROM work_item ORDER BY id") == before
    assert desk.rows("SELECT 1 FROM stage_result") == []
    assert desk.rows("SELECT 1 FROM stage_execution WHERE ended_at IS NOT NULL") == []


def test_the_dead_are_those_without_a_heartbeat_for_the_whole_limit(desk):
    first, last = desk.running(), desk.running(attempts=3)
    desk.clock(NOON - timedelta(seconds=10) + GRACE)
    assert desk.gate.reap() == 0
    desk.clock(NOON - timedelta(seconds=10) + GRACE + TICK)
    assert desk.gate.reap() == 2
    assert (desk.item(first.item_id)["state"], desk.item(first.item_id)["attempts"]) == ("queued", 1)
    assert desk.item(last.item_id)["state"] == "failed"
    assert desk.gate.reap() == 0


def test_due_is_now_where_a_claim_would_find_something_and_changes_nothing(desk):
    desk.phase("audio")
    item = desk.add()[1]
    before = desk.item(item)
    assert desk.gate.due(Lane.GPU) == timedelta(0)
    assert desk.gate.due(Lane.POST) is None
    assert desk.item(item) == before
    assert desk.gate.claim(Lane.GPU) is not None
    assert desk.gate.due(Lane.GPU) is None


def test_due_is_the_earliest_of_what_waits_in_the_lane(desk):
    desk.phase("audio")
    assert desk.gate.due(Lane.GPU) is None
    desk.add(not_before=NOON + timedelta(seconds=9))
    desk.add(not_before=NOON + timedelta(seconds=7), begun=True)
    desk.add("finalize", "post", not_before=NOON + timedelta(seconds=1))
    desk.add("prepare", state="done", not_before=NOON + timedelta(seconds=2))
    assert desk.gate.due(Lane.GPU) == timedelta(seconds=7)
    assert desk.gate.due(Lane.POST) is None, "a closed lane does not come up by itself"
    desk.phase("draining")
    assert desk.gate.due(Lane.GPU) is None
    desk.phase("llm")
    assert desk.gate.due(Lane.POST) == timedelta(seconds=1)


def test_due_passes_over_what_waits_no_longer_and_is_only_full(desk):
    """A kind that is full comes up when one of it ends, and not at its old moment."""
    desk.phase("audio")
    gate = desk.make(capacity={"transcribe": 1})
    desk.running("transcribe")
    desk.add("transcribe", not_before=NOON)
    assert gate.due(Lane.GPU) is None
    desk.add("transcribe", not_before=NOON + TICK)
    assert gate.due(Lane.GPU) == TICK


def test_a_claim_passes_over_what_another_has_just_locked(desk):
    desk.phase("audio")
    first, second = desk.add()[1], desk.add()[1]
    with held_transaction(desk.engine) as connection:
        connection.execute(text("SELECT 1 FROM work_item WHERE id = :id FOR UPDATE"), {"id": first})
        assert desk.gate.claim(Lane.GPU).item_id == second


def test_claims_of_several_workers_do_not_wait_for_each_other_at_the_phase_row(desk):
    desk.phase("audio")
    desk.add()
    with held_transaction(desk.engine) as connection:
        connection.execute(text("SELECT 1 FROM gpu_phase FOR SHARE"))
        assert desk.gate.claim(Lane.GPU) is not None


AHEAD = replace(STAGES, ahead=frozenset({"acquire", "prepare"}))


def ahead_gate(desk, policy=ON, **more):
    return Gate(desk.engine, policy, AHEAD, worker="host:7", grace=GRACE, attempts=3, **more)


@pytest.mark.parametrize("phase", ["llm", "acquiring", "draining", "error"])
def test_what_needs_no_gpu_is_done_in_a_closed_lane(desk, phase):
    desk.phase(phase)
    gate = ahead_gate(desk)
    desk.add("transcribe")
    desk.add("run_assets", "post", state="done")
    first = desk.add("acquire", waiting_since=NOON - timedelta(hours=1))[1]
    second = desk.add("prepare", begun=True, waiting_since=NOON - timedelta(hours=1))[1]
    assert gate.due(Lane.GPU) == timedelta(0)
    assert [gate.claim(Lane.GPU).item_id for _ in range(2)] == [first, second]
    assert gate.claim(Lane.GPU) is None
    assert gate.due(Lane.GPU) is None


def test_it_waits_for_its_moment_and_only_it_comes_up_in_a_closed_lane(desk):
    desk.phase("llm")
    gate = ahead_gate(desk)
    desk.add("transcribe", not_before=NOON + timedelta(seconds=1))
    desk.add("prepare", not_before=NOON + timedelta(seconds=4))
    assert gate.claim(Lane.GPU) is None
    assert gate.due(Lane.GPU) == timedelta(seconds=4)
    desk.clock(NOON + timedelta(seconds=4))
    assert gate.claim(Lane.GPU).kind == "prepare"


def test_without_any_row_it_is_done_too(desk):
    gate = ahead_gate(desk)
    desk.add("transcribe")
    desk.add("acquire")
    assert gate.claim(Lane.GPU).kind == "acquire"
    assert gate.claim(Lane.GPU) is None


def test_in_an_open_lane_what_needs_the_gpu_comes_first(desk):
    desk.phase("audio")
    gate = ahead_gate(desk)
    desk.add("acquire")
    desk.add("prepare", begun=True)
    desk.add("transcribe")
    desk.add("diarize_embed", begun=True)
    assert [gate.claim(Lane.GPU).kind for _ in range(4)] == ["diarize_embed", "transcribe", "acquire", "prepare"]


def test_a_pause_lets_only_what_has_begun_go_on_ahead(desk):
    desk.phase("llm")
    gate = ahead_gate(desk)
    desk.write("UPDATE work_control SET paused_at = :now, paused_by = 'op'", now=NOON)
    desk.add("acquire")
    desk.add("prepare", begun=True)
    assert gate.claim(Lane.GPU).kind == "prepare"
    assert gate.claim(Lane.GPU) is None
    assert gate.due(Lane.GPU) is None


def test_what_is_done_ahead_is_no_work_of_the_post_lane(desk):
    desk.phase("draining")
    gate = ahead_gate(desk)
    desk.add("finalize", "post")
    assert gate.claim(Lane.POST) is None
    assert gate.due(Lane.POST) is None
