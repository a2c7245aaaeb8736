"""A regular worker with one of its safeguards taken out: the campaign must find it. Used by the twins only."""

from __future__ import annotations

import sys

from sqlalchemy import text

from voxint.gpu_phase import gate, lanes
from voxint.settings import load_settings
from voxint.work.processes import run_worker


def without_gate() -> None:
    """Every lane is always open."""
    lanes.is_open = lambda *_: True


def without_token() -> None:
    """A worker writes its result whether or not the claim is still its own."""

    def end(connection, claim, state, now):
        connection.execute(
            text("UPDATE work_item SET state = :state, claim_token = NULL, finished_at = :now WHERE id = :id"),
            {"state": state, "now": now, "id": claim.item_id},
        )
        connection.execute(
            text("UPDATE stage_execution SET ended_at = NULL, outcome = NULL WHERE claim_token = :token"),
            {"token": claim.token},
        )
        return True

    gate._end = end
    gate.Gate.beat = lambda *_: True


BREAK = {"gate": without_gate, "token": without_token}

if __name__ == "__main__":
    BREAK[sys.argv[1]]()
    sys.exit(run_worker(load_settings(), concurrency=int(sys.argv[3])))
