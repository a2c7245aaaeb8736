"""The dead time of a turn, each way: `python benchmarks/turn.py`. Real processes all through, stand-ins for the models.

There: from the moment a recording is queued until a worker takes it up. Back: from the end of its last stage on the GPU
until a worker takes up what the language model has to do with it. Both as the database's clock wrote them down. What
cannot be less is what stops on one side plus what starts on the other, and the stand-ins' times for that are known.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audio_window import recordings
from figures import RATIO, Row, median, percentile, row
from ground import folder
from sqlalchemy import text
from stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARE, SECONDS = 1.05, 1.0
"""The limit: so many times the services' own time, and so many seconds."""
LIMIT_SECONDS = 900.0
AS_SHIPPED = {"GPU_PHASE_TICK_SECONDS": "30", "GPU_PHASE_MIN_DWELL_SECONDS": "0", "GPU_PHASE_MAX_AUDIO_SECONDS": "7200"}
TICKS_ALONE = {"GPU_PHASE_FOLLOW_UP_SECONDS": "0"}
"""Nothing but a tick every 30 s moves the phase, as in the description that this began with."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long the stand-ins take, in seconds, on each side."""

    stop: float
    start: float

    @property
    def own(self) -> float:
        """What a turn cannot be shorter than."""
        return self.stop + self.start

    @property
    def limit(self) -> float:
        """What it may take."""
        return round(self.own * SHARE + SECONDS, 2)

    def __str__(self) -> str:
        return f"{self.stop:g}/{self.start:g} s"


QUICK_SERVICES, SERVICES, SLOW_SERVICES = Times(0.2, 0.5), Times(2, 20), Times(5, 60)


class Turning(Stack):
    """The stack of the campaigns, with stand-ins of these times and nothing else shortened than the dwell."""

    def __init__(self, home: Path, times: Times, **overrides: str) -> None:
        self._times = times
        super().__init__(home, overrides=AS_SHIPPED | overrides)

    def _stub(self, name: str) -> list[str]:
        argv = [word for word in super()._stub(name) if not word.startswith(("--start", "--stop", "--answer"))]
        return [
            *argv,
            f"--start-seconds={self._times.start}",
            f"--stop-seconds={self._times.stop}",
            "--answer-seconds=0.01",
        ]

    def turn(self, recording: Path) -> tuple[float, float]:
        """One turn there and back with one recording: the dead time of each way, in seconds."""
        run_id = self.parts.run_store.add(recording).id
        self.parts.publisher.wake_phase()
        self._until("SELECT 1 FROM run WHERE id = :run AND status = 'done'", run=run_id)
        return self._one(_THERE, run_id), self._one(_BACK, run_id)

    def rest(self) -> None:
        """Wait until the language model has the GPU and answers."""
        self._until("SELECT 1 FROM gpu_phase WHERE phase = 'llm' AND llm_ready")

    def _until(self, query: str, **values: object) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < end:
            with self.parts.engine.begin() as connection:
                if connection.execute(text(query), values).first() is not None:
                    return
            time.sleep(0.1)
        raise SystemExit(f"it did not come to this within {LIMIT_SECONDS:g} s: {query}; see {self.logs}")

    def _one(self, query: str, run_id: int) -> float:
        with self.parts.engine.begin() as connection:
            return float(connection.execute(text(query), {"run": run_id}).scalar_one())


_THERE = """
    SELECT extract(epoch FROM (SELECT min(started_at) FROM stage_execution WHERE run_id = :run)
        - (SELECT min(queued_at) FROM work_item WHERE run_id = :run))
"""
_BACK = """
    SELECT extract(epoch FROM (SELECT min(started_at) FROM stage_execution WHERE run_id = :run AND kind = 'enhance_match')
        - (SELECT max(ended_at) FROM stage_execution WHERE run_id = :run AND kind = 'diarize_embed'))
"""


def turns(times: Times, count: int, **overrides: str) -> list[tuple[float, float]]:
    """So many turns, on a stack of their own."""
    with folder("turn") as place:
        stack = Turning(place / "home", times, **overrides)
        try:
            stack.start()
            stack.rest()
            found = []
            for recording in recordings(place, count):
                found.append(stack.turn(recording))
                stack.rest()
            return found
        finally:
            stack.end()


def rows_of(name: str, times: Times, found: list[tuple[float, float]], *, limited: bool = True) -> Iterator[Row]:
    """Each way's middle and worst."""
    for way, seconds in (("there", [there for there, _ in found]), ("back", [back for _, back in found])):
        limit = times.limit if limited else None
        yield row(f"turn of {name}, {way}", median(seconds), "s", len(found), limit)
        if len(found) > 1:
            yield row(f"turn of {name}, {way}, p95", percentile(seconds, 0.95), "s", len(found), limit)
        yield row(f"turn of {name}, {way}, best, over stop and start", min(seconds) / times.own, RATIO, len(found))


def measure(*, quick: bool = False) -> list[Row]:
    """Quick services, 20 turns; in `make bench-quick` one."""
    name = f"services of {QUICK_SERVICES}"
    return list(rows_of(name, QUICK_SERVICES, turns(QUICK_SERVICES, 3 if quick else 20)))


def measure_slow(times: Times) -> list[Row]:
    """One turn of slow services."""
    return list(rows_of(f"services of {times}", times, turns(times, 1)))


def measure_ticks_alone() -> list[Row]:
    """One turn of quick services, with a tick every 30 s and nothing else."""
    name = f"services of {QUICK_SERVICES}, a tick every 30 s and no wake-ups"
    return list(rows_of(name, QUICK_SERVICES, turns(QUICK_SERVICES, 1, **TICKS_ALONE), limited=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for each in measure(quick=parser.parse_args().quick):
        print(each)
