"""Real Celery workers on a database and a Redis, whose stages do what the recordings' titles say, for tests of the queue."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.wiring import Parts

SCRIPT = Path(__file__).parent / "worker_on_stand_ins.py"


@dataclass
class Bench:
    """Workers on a database and a Redis, and what became of the recordings."""

    processes: object
    environ: dict
    parts: Parts
    stage_log: Path
    through: tuple = ()
    """Words before each command: what starts it on another host."""

    def on(self, host):
        """The same bench, whose processes start on a host of its own and write down their stages there."""
        log = self.stage_log.with_name(f"stages-{host.name}.log")
        return dataclasses.replace(
            self, environ=self.environ | {"STAGE_LOG": str(log)}, stage_log=log, through=host.words
        )

    def worker(self, concurrency=2, name="worker", **more):
        return self._start(["worker", str(concurrency)], name, more)

    def gpu_phase(self, name="gpu-phase", **more):
        return self._start(["gpu-phase", "1"], name, more)

    def beat(self, name="beat", **more):
        return self._start(["beat", "1"], name, more)

    def _start(self, words, name, more):
        return self.processes.start([*self.through, sys.executable, SCRIPT, *words], env=self.environ | more, name=name)

    def add(self, title):
        with self.parts.engine.begin() as connection:
            run_id = connection.execute(
                text(
                    "INSERT INTO run (title, source, source_kind, folder, created_at)"
                    " VALUES (:title, 's', 'file', 'f', voxint_now()) RETURNING id"
                ),
                {"title": title},
            ).scalar_one()
            connection.execute(
                text(
                    "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                    " VALUES (:run, 'acquire', 'gpu', voxint_now(), voxint_now())"
                ),
                {"run": run_id},
            )
        return run_id

    def wake(self, count=4):
        self.parts.publisher.wake_lane(Lane.GPU, count)

    def status(self, run_id):
        return self.rows("SELECT status, error FROM run WHERE id = :id", id=run_id)[0]

    def rows(self, query, **values):
        with self.parts.engine.begin() as connection:
            return connection.execute(text(query), values).all()

    def done(self, *runs):
        return all(self.status(run).status == "done" for run in runs)

    def stages(self, what="start"):
        if not self.stage_log.exists():
            return []
        lines = [line.split() for line in self.stage_log.read_text().splitlines()]
        return [(int(run), kind) for each, run, kind, *_ in lines if each == what]


@contextlib.contextmanager
def work_bench(processes, database_url, redis_url, folder):
    """A bench; its workers end with the test that started them."""
    environ = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(folder / "media"),
        "STAGE_LOG": str(folder / "stages.log"),
        "WORK_HEARTBEAT_SECONDS": "0.5",
        "WORK_HEARTBEAT_LIMIT_SECONDS": "3",
        "COMPUTE_TIER": "simulated",
        "SERVICE_CONTROL": "process",
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[2] / "src")]),
    }
    parts = Parts(load_settings(environ))
    try:
        yield Bench(processes, environ, parts, Path(environ["STAGE_LOG"]))
    finally:
        parts.close()


def sharing(environ, **more):
    return (
        environ
        | {
            "GPU_PHASE_ENABLED": "true",
            "GPU_PHASE_TICK_SECONDS": "5",
            "GPU_PHASE_MIN_DWELL_SECONDS": "0",
            **{f"GPU_LEASE_{name}_URL": f"http://127.0.0.1:9/{name}" for name in ("ACQUIRE", "RELEASE", "STATUS")},
        }
        | more
    )
