"""A cancel or a deletion meets a worker in the middle of its transaction: one waits for the other, and neither is broken off.

The worker's transaction is taken apart here, so that the other always comes in between its two writes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from held_transaction import held_transaction
from sqlalchemy import text

from voxint.gpu_phase.model import Lane
from voxint.recordings import roster
from voxint.recordings.lifecycle import NotPossibleError

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def until_somebody_waits(engine, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with engine.connect() as connection:
            if connection.execute(text(WAITING)).scalar_one():
                return
        time.sleep(0.05)
    raise AssertionError("nobody waited for the other's lock")


def claimed_by_hand(connection, run_id):
    """The first of a claim's two writes."""
    connection.execute(
        text(
            "UPDATE work_item SET state = 'running', claim_token = 'by-hand', heartbeat_at = voxint_now(),"
            " attempts = attempts + 1 WHERE run_id = :id AND state = 'queued'"
        ),
        {"id": run_id},
    )


def told_by_hand(connection, run_id):
    """The second one, and the row of the history."""
    connection.execute(text("UPDATE run SET status = 'running' WHERE id = :id"), {"id": run_id})
    connection.execute(
        text(
            "INSERT INTO stage_execution (work_item_id, run_id, kind, attempt, claim_token, worker, started_at)"
            " SELECT id, run_id, kind, 1, claim_token, 'w', voxint_now() FROM work_item WHERE run_id = :id"
        ),
        {"id": run_id},
    )


def test_a_cancel_in_the_middle_of_a_claim_waits_and_ends_what_was_begun(world, make_wav):
    run = world.runs.add(make_wav())
    with ThreadPoolExecutor() as pool:
        with held_transaction(world.engine) as connection:
            claimed_by_hand(connection, run.id)
            cancel = pool.submit(world.parts.lifecycle.cancel, run.id)
            until_somebody_waits(world.engine)
            told_by_hand(connection, run.id)
        cancel.result(60)
    assert world.runs.get(run.id).status == "cancelled"
    assert world.item(run.id, "acquire").state == "cancelled"
    (execution,) = world.runs.show(run.id).executions
    assert execution.outcome == "cancelled", "the history would say for ever that it runs"


def test_a_deletion_in_the_middle_of_a_claim_waits_and_is_refused(world, make_wav):
    run = world.runs.add(make_wav())
    with ThreadPoolExecutor() as pool:
        with held_transaction(world.engine) as connection:
            claimed_by_hand(connection, run.id)
            deletion = pool.submit(world.runs.delete, run.id)
            until_somebody_waits(world.engine)
            told_by_hand(connection, run.id)
        with pytest.raises(NotPossibleError, match="is being worked on"):
            deletion.result(60)
    assert world.runs.get(run.id).status == "running"


def test_a_cancel_in_the_middle_of_a_stages_end_cancels_the_stage_that_follows(world, make_wav):
    run = world.runs.add(make_wav())
    claim = world.parts.gate.claim(Lane.GPU)
    with ThreadPoolExecutor() as pool:
        with held_transaction(world.engine) as connection:
            connection.execute(
                text(
                    "UPDATE work_item SET state = 'done', claim_token = NULL, finished_at = voxint_now() WHERE id = :id"
                ),
                {"id": claim.item_id},
            )
            cancel = pool.submit(world.parts.lifecycle.cancel, run.id)
            until_somebody_waits(world.engine)
            connection.execute(
                text(
                    "INSERT INTO work_item (run_id, kind, lane, begun, queued_at, waiting_since)"
                    " VALUES (:id, 'prepare', 'gpu', true, voxint_now(), voxint_now())"
                ),
                {"id": run.id},
            )
            connection.execute(text("UPDATE run SET stage = 'prepare' WHERE id = :id"), {"id": run.id})
        cancel.result(60)
    assert world.runs.get(run.id).status == "cancelled"
    assert world.item(run.id, "prepare").state == "cancelled"
    assert world.parts.lifecycle.requeue(run.id) == "prepare"


@pytest.mark.parametrize("how", ["named", "merged"])
def test_a_deletion_in_the_middle_of_a_naming_waits_for_it(world, make_wav, monkeypatch, how):
    run = world.runs.add(make_wav())
    world.finish()
    usual = roster._show
    store = roster.Roster(world.engine)
    voices = [entry.id for entry in store.list()]
    store.rename(voices[1], "Ben")
    deletions = []
    with ThreadPoolExecutor() as pool:

        def show(*args):
            if not deletions:
                deletions.append(pool.submit(world.runs.delete, run.id))
                until_somebody_waits(world.engine)
            usual(*args)

        monkeypatch.setattr(roster, "_show", show)
        if how == "named":
            store.name_in_run(run.id, "SPEAKER_00", "Anna")
        else:
            store.merge(voices[0], voices[1])
        deletions[0].result(60)
    assert world.runs.get(run.id) is None
    assert not run.folder.exists()
