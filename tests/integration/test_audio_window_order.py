"""In an audio window the services work side by side: the real gate hands the work out, and time is simulated.

Ten recordings; whisper takes 6 s, pyannote 4 s and titanet 1 s. Nothing here waits, so a busy machine changes nothing.
The same over real processes and seconds is `make bench-window`.
"""

from __future__ import annotations

import heapq
from datetime import timedelta
from itertools import count, pairwise

import pytest
from phase_world import STAGES
from sqlalchemy import text

from voxint.gpu_phase.gate import Gate
from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.policy import Policy
from voxint.wiring import CAPACITY

SECONDS = {"acquire": 0.2, "prepare": 0.5, "transcribe": 6.0, "diarize_embed": 4.0 + 1.0}


@pytest.fixture
def ten(engine):
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase (phase, phase_since, ticked_at, lease_id)"
                " VALUES ('audio', voxint_now(), voxint_now(), 'b7c1')"
            )
        )
        for _ in range(10):
            connection.execute(
                text(
                    "WITH made AS (INSERT INTO run (title, source, source_kind, folder, created_at)"
                    " VALUES ('t', 's', 'file', 'f', voxint_now()) RETURNING id)"
                    " INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                    " SELECT id, 'acquire', 'gpu', voxint_now(), voxint_now() FROM made"
                )
            )


def work_off(engine, workers, capacity=CAPACITY, stages=STAGES):
    """What each kind of work was busy with: (begin, end) of every stage, in simulated seconds."""
    gate = Gate(engine, Policy(), stages, worker="w", grace=timedelta(seconds=60), attempts=3, capacity=capacity)
    now, idle, under_way, done, order = 0.0, workers, [], [], count()
    while True:
        while idle and (claim := gate.claim(Lane.GPU)):
            idle -= 1
            heapq.heappush(under_way, (now + SECONDS[claim.kind], next(order), now, claim))
        if not under_way:
            return done
        now, _, begun, claim = heapq.heappop(under_way)
        assert gate.complete(claim, {})
        done.append((claim.kind, claim.run_id, begun, now))
        idle += 1


def busy(done, kind):
    spans = [(begun, ended) for each, _, begun, ended in done if each == kind]
    return sum(ended - begun for begun, ended in spans) / (max(e for _, e in spans) - min(b for b, _ in spans))


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_whisper_is_never_kept_waiting(engine, ten, workers):
    done = work_off(engine, workers)
    assert len(done) == 40
    assert busy(done, "transcribe") >= 0.9
    whole = max(ended for *_, ended in done)
    assert whole < 10 * 6 + 2 * 5 + 10, f"the window took {whole} s"


def test_each_service_is_asked_one_thing_at_a_time(engine, ten):
    done = work_off(engine, 4)
    for kind in ("transcribe", "diarize_embed"):
        spans = sorted((begun, ended) for each, _, begun, ended in done if each == kind)
        assert all(first[1] <= second[0] for first, second in pairwise(spans)), kind


def test_the_figure_falls_where_services_do_not_work_side_by_side(engine, ten):
    """The twin: one worker alone takes a recording through all stages before the next."""
    assert busy(work_off(engine, 1), "transcribe") < 0.7
