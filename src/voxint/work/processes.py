"""The long-running Celery processes: the regular worker, the gpu-phase worker, and beat."""

from __future__ import annotations

import importlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from voxint.logs import set_up
from voxint.settings import SettingsError
from voxint.work.app import make_app
from voxint.work.names import TICK_QUEUE, WORK_QUEUES
from voxint.work.publish import Publisher
from voxint.work.schedule import BoundedScheduler, entries
from voxint.work.tasks import register

if TYPE_CHECKING:
    from voxint.settings import Settings


FIRST_PIECE = (
    "sqlalchemy.dialects.postgresql.psycopg",
    "voxint.db.engine",
    "voxint.gpu_phase.gate",
    "voxint.recordings.stages.context",
    "voxint.recordings.stages.table",
)
"""What a process of the pool imports for its first piece of work. Imported before the fork it is paid for once, and shared:
a lane that opens wakes all of them at the same moment."""


def run_worker(settings: Settings, *, gpu_phase: bool = False, concurrency: int = 4) -> int:
    """Consume until told to stop. The gpu-phase worker takes ticks alone, one at a time.

    Raises:
        SettingsError: a gpu-phase worker that could not control the model services.
    """
    if gpu_phase and settings.service_control == "none":
        raise SettingsError(
            ["SERVICE_CONTROL: the gpu-phase worker must start and stop the model services: use docker or process"]
        )
    set_up(json=settings.log_json)
    app = make_app(settings)
    register(app, settings)
    if not gpu_phase:
        for name in FIRST_PIECE:
            importlib.import_module(name)
    worker = app.Worker(
        hostname=f"{'gpu-phase' if gpu_phase else 'worker'}-{os.getpid()}@{socket.gethostname()}",
        queues=[TICK_QUEUE] if gpu_phase else list(WORK_QUEUES),
        concurrency=1 if gpu_phase else concurrency,
        pool="prefork",
        loglevel="INFO",
        without_gossip=True,
        without_mingle=True,
        optimization="fair",
    )
    worker.start()
    return int(worker.exitcode or 0)


def run_beat(settings: Settings) -> int:
    """Send the periodic messages until told to stop."""
    set_up(json=settings.log_json)
    app = make_app(settings)
    app.conf.beat_schedule = entries(settings)
    logging.getLogger(__name__).info("beat sends %s", ", ".join(sorted(app.conf.beat_schedule)))
    scheduler = type("BoundScheduler", (BoundedScheduler,), {"publisher": Publisher(settings)})
    app.Beat(scheduler_cls=scheduler, loglevel="INFO", max_interval=1, schedule="", pidfile=None).run()
    return 0
