"""The gate: `python benchmarks/gate.py`. Claims a second, beside a plain UPDATE ... RETURNING of the same rows.

The workers are processes, as many as said, each with its own connections. A round lets the gate hand out work for a
while, and then plain statements take as many rows of the same table for as long; the rounds alternate. PostgreSQL runs
as a standalone has it: each commit is on the disk before it counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Protocol

from figures import RATIO, Row, median, row
from ground import database
from sqlalchemy import text

from voxint.db.engine import make_engine
from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.wiring import Parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing import SimpleQueue
    from multiprocessing.synchronize import Barrier

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
    " claimed_by = :who, claimed_at = now(), heartbeat_at = now() WHERE id = ("
    "SELECT id FROM work_item WHERE lane = 'gpu' AND state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
    " RETURNING id, run_id, kind"
)
"""What anybody would write for a queue in PostgreSQL: one statement, one row, one commit."""


def fill(engine: Engine, runs: int) -> None:
    """So many queued recordings."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
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
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM ANALYZE run, work_item"))
        connection.execute(text("RESET statement_timeout"))


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


class Taking(Protocol):
    """A way of taking work, and under which name."""

    engine: Engine
    who: str

    def take(self) -> bool:
        """Take one piece; False where there is none."""
        ...


class Claims:
    """The gate's."""

    def __init__(self, url: str) -> None:
        self._gate = Parts(load_settings({**ENVIRON, "DATABASE_URL": url})).gate
        self.engine, self.who = self._gate._engine, self._gate._worker  # noqa: SLF001 - the very connections of the gate

    def take(self) -> bool:
        """A claim."""
        return self._gate.claim(Lane.GPU) is not None


class Plain:
    """The plain statement's."""

    def __init__(self, url: str) -> None:
        self.engine, self.who, self._taken = make_engine(url), f"bench:{os.getpid()}", 0

    def take(self) -> bool:
        """A row."""
        self._taken += 1
        values = {"token": f"{self.who}-{self._taken}", "who": self.who}
        with self.engine.begin() as connection:
            return connection.execute(PLAIN, values).first() is not None


TAKEN = text("UPDATE work_item SET state = 'done', claim_token = NULL WHERE state = 'running' AND claimed_by = :who")
EVERY = 8


def _work(make: Callable[[str], Taking], url: str, seconds: float, start: Barrier, told: SimpleQueue) -> None:
    taking = make(url)
    taking.take()  # the connection, and what is compiled once
    start.wait(60)
    spent, count = 0.0, 0
    while spent < seconds:
        begun = time.monotonic()
        if not taking.take():
            break
        spent += time.monotonic() - begun
        count += 1
        if count % EVERY == 0:  # not counted: as in life, no more run than there are workers
            with taking.engine.begin() as connection:
                connection.execute(TAKEN, {"who": taking.who})
    told.put(count / spent)


def rate(make: Callable[[str], Taking], url: str, workers: int, seconds: float) -> float:
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
        both: list[type[Claims | Plain]] = [Claims, Plain] if number % 2 == 0 else [Plain, Claims]
        taken = {}
        for each in both:
            with engine.begin() as connection:
                connection.execute(text("TRUNCATE run CASCADE"))
            fill(engine, round(8_000 * seconds))
            taken[each] = rate(each, url, workers, seconds)
        pairs.append((taken[Claims], taken[Plain]))
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
            rows.append(row(f"{name}, claims over plain", ratio, RATIO, rounds, LEAST_RATIO, bound="at least"))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for each in measure(quick=parser.parse_args().quick):
        print(each)
