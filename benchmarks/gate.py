"""The gate: `python benchmarks/gate.py`. Claims a second, beside a plain UPDATE ... RETURNING of the same rows.

The workers are processes, as many as said, each with its own connections. A round lets the gate hand out work for a
while, and then plain statements take as many rows of the same table for as long; the rounds alternate. PostgreSQL runs
as a standalone has it: each commit is on the disk before it counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from figures import RATIO, Row, median, row
from ground import database
from voxint.db.engine import make_engine
from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.wiring import Parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier
    from multiprocessing import SimpleQueue

    from sqlalchemy import Engine

LEAST_RATIO = 0.5
WORKERS = (1, 4, 16)
ENVIRON = {
    "GPU_PHASE_ENABLED": "true",
    "COMPUTE_TIER": "simulated",
    **{f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/{name}" for name in ("ACQUIRE", "RELEASE", "STATUS")},
}
PLAIN = text(
    "UPDATE work_item SET state = 'running', begun = true, attempts = attempts + 1, claim_token = :token,"
    " claimed_by = 'bench', claimed_at = now(), heartbeat_at = now() WHERE id = ("
    "SELECT id FROM work_item WHERE lane = 'gpu' AND state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
    " RETURNING id, run_id, kind"
)
"""What anybody would write for a queue in PostgreSQL: one statement, one row, one commit."""


def fill(engine: Engine, runs: int) -> None:
    """So many queued recordings."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "WITH made AS (INSERT INTO run (title, source, source_kind, folder, created_at)"
                " SELECT 'sleep 3 stage=acquire', 's', 'file', 'f', voxint_now() FROM generate_series(1, :runs)"
                " RETURNING id) INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                " SELECT id, 'acquire', 'gpu', voxint_now(), voxint_now() FROM made"
            ),
            {"runs": runs},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE run, work_item"))


def open_lane(engine: Engine) -> None:
    """The phase in which the GPU lane is open, with a lease that lasts."""
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM gpu_phase"))
        connection.execute(
            text(
                "INSERT INTO gpu_phase (phase, phase_since, ticked_at, lease_id, lease_expires_at)"
                " VALUES ('audio', voxint_now(), voxint_now(), 'bench', voxint_now() + interval '1 hour')"
            )
        )


def claims(url: str) -> Callable[[], bool]:
    """Takes a piece of work from the gate."""
    gate = Parts(load_settings({**ENVIRON, "DATABASE_URL": url})).gate
    return lambda: gate.claim(Lane.GPU) is not None


def plain(url: str) -> Callable[[], bool]:
    """Takes a row with the plain statement."""
    engine = make_engine(url)
    taken = iter(range(1 << 40))
    mark = f"{multiprocessing.current_process().pid}"

    def take() -> bool:
        with engine.begin() as connection:
            return connection.execute(PLAIN, {"token": f"{mark}-{next(taken)}"}).first() is not None

    return take


def _work(make: Callable[[str], Callable[[], bool]], url: str, seconds: float, start: Barrier, told: SimpleQueue) -> None:
    take = make(url)
    take()  # the connection, and what is compiled once
    start.wait(60)
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        if not take():
            break
        count += 1
    told.put(count / (time.monotonic() - begun))


def rate(make: Callable[[str], Callable[[], bool]], url: str, workers: int, seconds: float) -> float:
    """What so many processes take together, a second."""
    context = multiprocessing.get_context("fork")
    start, told = context.Barrier(workers), context.SimpleQueue()
    started = [context.Process(target=_work, args=(make, url, seconds, start, told)) for _ in range(workers)]
    for each in started:
        each.start()
    found = [told.get() for _ in started]
    for each in started:
        each.join()
    return sum(found)


def compare(url: str, workers: int, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Claims a second, plain ones a second, and the middle of the rounds' ratios."""
    pairs = []
    engine = make_engine(url)
    for number in range(rounds):
        both = [claims, plain] if number % 2 == 0 else [plain, claims]
        taken = {}
        for each in both:
            with engine.begin() as connection:
                connection.execute(text("TRUNCATE run CASCADE"))
            fill(engine, round(8_000 * seconds))
            taken[each] = rate(each, url, workers, seconds)
        pairs.append((taken[claims], taken[plain]))
    engine.dispose()
    return (
        median(ours for ours, _ in pairs),
        median(theirs for _, theirs in pairs),
        median(ours / theirs for ours, theirs in pairs),
    )


def measure(*, quick: bool = False) -> list[Row]:
    """Claims with 1, 4 and 16 workers; quick: with 1 and 4."""
    rounds, seconds = (3, 0.5) if quick else (5, 1.0)
    rows = []
    with database() as url:
        engine = make_engine(url)
        open_lane(engine)
        engine.dispose()
        for workers in WORKERS[:2] if quick else WORKERS:
            ours, theirs, ratio = compare(url, workers, rounds, seconds)
            name = f"gate: {workers} worker{'s' * (workers > 1)}"
            rows.append(row(f"{name}, claims", ours, "1/s", rounds))
            rows.append(row(f"{name}, plain UPDATE ... RETURNING", theirs, "1/s", rounds))
            rows.append(row(f"{name}, claims over plain", ratio, RATIO, rounds, LEAST_RATIO, "at least"))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for each in measure(quick=parser.parse_args().quick):
        print(each)
