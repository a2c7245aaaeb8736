"""A lane opens and 10,000 runs wait: `python benchmarks/opening.py`. The time until every worker is busy.

Real Celery workers on a real PostgreSQL and Valkey, whose stages hold their claims for a while; the turn is made by the
product's own tick, with stand-ins for broker, services and language model. From the moment at which the phase became
`audio` until the last of the workers had taken its first claim, both by the database's clock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from figures import Row, median, row
from gate import ENVIRON, fill
from ground import ROOT, database, folder, valkey
from phase_world import FakeBroker, FakeLanguageModel, FakeServices
from sqlalchemy import text
from work_bench import SCRIPT

from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.tick import Machine
from voxint.settings import load_settings
from voxint.wiring import Parts
from voxint.work.tasks import run_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUEUED = 10_000
WORKERS = (2, 8)
"""Two workers of eight."""
LIMIT_SECONDS = 60.0
BUSY = "SELECT count(*) FROM work_item WHERE state = 'running'"
OPENED = """
    SELECT extract(epoch FROM (SELECT max(started_at) FROM (SELECT started_at FROM stage_execution ORDER BY id LIMIT :all) f)
        - (SELECT max(at) FROM gpu_phase_event WHERE to_phase = 'audio'))
"""


@contextlib.contextmanager
def _workers(environ: dict[str, str], place: Path) -> Iterator[None]:
    started = []
    try:
        for number in range(WORKERS[0]):
            with (place / f"worker-{number}.log").open("ab") as log:
                argv = [sys.executable, str(SCRIPT), "worker", str(WORKERS[1])]
                started.append(subprocess.Popen(argv, env=environ, stdout=log, stderr=log, start_new_session=True))
        _until(lambda: all("ready" in (place / f"worker-{n}.log").read_text() for n in range(WORKERS[0])), "workers")
        yield
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {LIMIT_SECONDS:g} s")
        time.sleep(0.02)


def _opening(parts: Parts) -> float:
    """One turn to audio: the seconds until all are busy."""
    every = WORKERS[0] * WORKERS[1]
    with parts.engine.begin() as connection:
        connection.execute(text("TRUNCATE run, gpu_phase, gpu_phase_event CASCADE"))
    fill(parts.engine, QUEUED)
    parts.__dict__["machine"] = Machine(
        parts.phase_store, FakeBroker(), FakeServices(), FakeLanguageModel(), Policy(min_dwell=timedelta(0))
    )
    parts.publisher.client.flushall()
    while (report := run_tick(parts, *_token(parts))) is None or report.state.phase.value != "audio":
        pass

    def busy() -> bool:
        with parts.engine.begin() as connection:
            return connection.execute(text(BUSY)).scalar_one() >= every

    _until(busy, f"{every} workers are busy")
    with parts.engine.begin() as connection:
        return float(connection.execute(text(OPENED), {"all": every}).scalar_one())


def _token(parts: Parts) -> tuple[str]:
    """The outstanding wake-up's, which a gpu-phase worker would have been sent; a new one's where there is none."""
    parts.publisher.wake_phase()
    return (parts.publisher.client.hget("voxint:phase-wake", "token"),)


def measure() -> list[Row]:
    """One row."""
    times = []
    with database() as url, valkey() as redis, folder("opening") as place:
        environ = {
            **os.environ,
            **ENVIRON,
            "DATABASE_URL": url,
            "REDIS_URL": redis,
            "MEDIA_ROOT": str(place / "media"),
            "STAGE_LOG": str(place / "stages.log"),
            "SERVICE_CONTROL": "process",
            "GPU_PHASE_MIN_DWELL_SECONDS": "0",
            "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), str(ROOT / "src")]),
        }
        parts = Parts(load_settings(environ))
        for _ in range(5):
            with _workers(environ, place):
                times.append(_opening(parts))
            for log in place.glob("worker-*.log"):
                log.unlink()
        parts.close()
    busy = WORKERS[0] * WORKERS[1]
    return [row(f"lane opens on {QUEUED:,} queued: until {busy} workers are busy", median(times), "s", len(times))]


if __name__ == "__main__":
    for each in measure():
        print(each)
