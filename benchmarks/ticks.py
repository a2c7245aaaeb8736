"""A tick: `python benchmarks/ticks.py`. Its time and its SQL statements with an empty queue and with up to a million runs.

Real ticks on real databases, one for each length of the queue, in turns, so that a busy moment of the machine meets them
all. Broker, services and language model are stand-ins that answer at once: what is measured is the product's own part.
Two kinds of tick are most of a day: in `llm`, where recordings wait for the dwell to pass, and in `audio`, with a renewal.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from figures import RATIO, Row, median, percentile, row
from gate import fill
from ground import server
from phase_world import STAGES, FakeBroker, FakeLanguageModel, FakeServices
from sqlalchemy import event, text

from voxint.db.engine import make_engine
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import PhaseStore
from voxint.gpu_phase.tick import Machine, tick

if TYPE_CHECKING:
    from sqlalchemy import Engine

QUEUES = (0, 1_000, 100_000, 1_000_000)
QUICK = (0, 100_000)
MOST_RATIO = 1.2
LEASE = "bench"
POLICY = Policy(min_dwell=timedelta(hours=12), max_audio=timedelta(hours=24))
KINDS = ("llm", "audio")


@dataclass
class Ground:
    """A database with so many queued runs, a machine on it, and what its ticks took."""

    queued: int
    engine: Engine
    machine: Machine
    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    statements: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    counted: int = 0

    @classmethod
    def make(cls, url: str, queued: int) -> Ground:
        """Fill the database."""
        engine = make_engine(url)
        for begin in range(0, queued, 100_000):
            fill(engine, min(100_000, queued - begin))
        store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
        services = FakeServices()
        machine = Machine(store, FakeBroker(lease=LEASE), services, FakeLanguageModel(), POLICY)
        made = cls(queued, engine, machine)
        event.listen(engine, "before_cursor_execute", made._count)
        return made

    def _count(self, *_: object) -> None:
        self.counted += 1

    def enter(self, kind: str) -> None:
        """Put the machine into a phase that lasts."""
        audio = kind == "audio"
        self.machine.services.running = {"whisper", "pyannote", "titanet"} if audio else set()
        self.machine.broker.lease = LEASE if audio else None
        with self.engine.begin() as connection:
            connection.execute(text("DELETE FROM gpu_phase"))
            connection.execute(
                text(
                    "INSERT INTO gpu_phase (phase, phase_since, ticked_at, lease_id, lease_expires_at) VALUES"
                    " (:phase, voxint_now(), voxint_now(), :lease, voxint_now() + make_interval(hours => :hours))"
                ),
                {"phase": kind, "lease": LEASE if audio else None, "hours": 1 if audio else None},
            )

    def tick(self, kind: str) -> None:
        """One, measured."""
        self.counted = 0
        begun = time.perf_counter()
        report = tick(self.machine)
        self.seconds[kind].append(time.perf_counter() - begun)
        self.statements[kind].append(self.counted)
        if report.outcome != "saved" or report.moved or report.state.phase.value != kind:
            raise SystemExit(f"a tick in {kind} did something else: {report}")


def measure(*, quick: bool = False) -> list[Row]:
    """The rows of a table: for each kind of tick and each length of the queue."""
    queues, ticks = (QUICK, 60) if quick else (QUEUES, 200)
    with server() as place:
        made = [Ground.make(place(f"queue_{queued}"), queued) for queued in queues]
        for kind in KINDS:
            for each in made:
                each.enter(kind)
                for _ in range(10):
                    tick(each.machine)
            for _ in range(ticks):
                for each in made:
                    each.tick(kind)
        for each in made:
            each.engine.dispose()
    rows: list[Row] = []
    for kind in KINDS:
        for each in made:
            name = f"tick in {kind}, {each.queued:,} queued"
            seconds = each.seconds[kind]
            rows.append(row(f"{name}: median", median(seconds) * 1000, "ms", ticks))
            rows.append(row(f"{name}: p99", percentile(seconds, 0.99) * 1000, "ms", ticks))
            rows.append(row(f"{name}: SQL statements", max(each.statements[kind]), "1", ticks))
        for each in made[1:]:
            ratio = median(each.seconds[kind]) / median(made[0].seconds[kind])
            rows.append(row(f"tick in {kind}: median with {each.queued:,} over none", ratio, RATIO, ticks, MOST_RATIO))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for found in measure(quick=parser.parse_args().quick):
        print(found)
