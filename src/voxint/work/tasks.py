"""The Celery tasks. Thin: each makes its parts once a process, calls one function, and announces what came of it."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import TYPE_CHECKING

from celery.signals import worker_process_init, worker_process_shutdown

from voxint.alerts import finished, watch
from voxint.gpu_phase.followup import AT_ONCE, next_look
from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.tick import canonical, tick
from voxint.logs import line
from voxint.wiring import Parts
from voxint.work import meter
from voxint.work.names import SWEEP_TASK, TICK_TASK, WORK_TASK
from voxint.work.runner import work_once

if TYPE_CHECKING:
    from celery import Celery

    from voxint.gpu_phase.tick import Report
    from voxint.settings import Settings

log = logging.getLogger(__name__)


class _PerProcess:
    """The parts of this process: made at first use, after the fork, and never shared with the parent."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._parts: Parts | None = None
        self._pid = 0

    def get(self) -> Parts:
        if self._parts is None or self._pid != os.getpid():
            self._parts, self._pid = Parts(self.settings), os.getpid()
        return self._parts

    def close(self) -> None:
        if self._parts is not None and self._pid == os.getpid():
            self._parts.close()
        self._parts = None


def register(app: Celery, settings: Settings) -> None:
    """Put the tasks on an app."""
    parts = _PerProcess(settings)

    def forget(**_: object) -> None:
        parts.close()

    worker_process_init.connect(forget, weak=False)
    worker_process_shutdown.connect(forget, weak=False)

    @app.task(name=TICK_TASK, max_retries=0)
    def gpu_phase_tick(token: str | None = None, quiet: int = 0) -> None:
        run_tick(parts.get(), token, quiet)

    @app.task(name=WORK_TASK, max_retries=0)
    def work(lane: str) -> None:
        run_work(parts.get(), Lane(lane))

    @app.task(name=SWEEP_TASK, max_retries=0)
    def work_sweep() -> None:
        run_sweep(parts.get())


def run_tick(parts: Parts, token: str | None = None, quiet: int = 0) -> Report | None:
    """One tick, from a periodic message (no token) or an extra one. None when this message is not to be answered."""
    if not parts.settings.gpu_phase_enabled:
        return None
    if token is not None:
        if not parts.publisher.take_phase_wake(token):
            return None
    elif _too_soon(parts):
        return None
    parts.gate.reap()
    report = tick(parts.machine)
    line(log, "tick", canonical(report))
    meter.record(parts.publisher.client, report)
    _announce(parts, report, 0 if report.moved else quiet + 1)
    if token is None or report.moved:
        watch.check(parts)
    return report


def _too_soon(parts: Parts) -> bool:
    """Old periodic messages that arrive in a burst are one tick, whatever their number; so are those of two beats."""
    stored = parts.phase_store.read()
    if stored is None or stored.ticked_at is None:
        return False
    age = parts.phase_store.now() - stored.ticked_at
    return timedelta(0) <= age < parts.settings.policy.tick / 2


def _announce(parts: Parts, report: Report, quiet: int) -> None:
    for lane in report.opened:
        wake_lane(parts, lane)
    if report.outcome == "overtaken":
        parts.publisher.wake_phase(timedelta(milliseconds=200))
    elif report.state is not None and report.now is not None:
        after = next_look(
            report.state,
            report.now,
            parts.settings.policy,
            timedelta(seconds=parts.settings.gpu_phase_follow_up_seconds),
            moved=report.moved,
            quiet=quiet,
            hold_until=parts.phase_store.control().hold_until,
        )
        if after is not None:
            parts.publisher.wake_phase(after, quiet=quiet)


def wake_lane(parts: Parts, lane: Lane, at_least: int = 0) -> None:
    """Send wake-ups for what is queued in an open lane; `at_least` where the gate has said that there is something."""
    depths = parts.phase_store.depths(bound=LANE_LOOK)
    waiting = max(depths.gpu_waiting if lane is Lane.GPU else depths.post_waiting, at_least)
    if waiting:
        parts.publisher.wake_lane(lane, waiting)


LANE_LOOK = 32
"""How far a lane's queue is counted for wake-ups."""


def run_work(parts: Parts, lane: Lane) -> None:
    """Do one piece of the lane's work, and pass the wake-up on while there is more."""
    claim = work_once(
        parts.gate,
        lane,
        parts.work,
        every=timedelta(seconds=parts.settings.work_heartbeat_seconds),
        limit=timedelta(seconds=parts.settings.work_heartbeat_limit_seconds),
    )
    if claim is None:
        return
    if parts.settings.run_webhook_url is not None:
        finished.tell(parts)
    for each in Lane:
        due = parts.gate.due(each)
        if due == AT_ONCE:
            parts.publisher.wake_lane(each, LANE_LOOK if each is lane else 1)
        elif due is not None:
            parts.publisher.wake_lane_later(each, due)
        if due is None and each is lane:
            parts.publisher.wake_phase()


def run_sweep(parts: Parts) -> None:
    """Give back the work of the dead, wake open lanes whose wake-ups were lost, and tell of faults."""
    parts.gate.reap()
    watch.check(parts)
    finished.tell(parts)
    parts.upkeep.run()
    for lane in Lane:
        if parts.gate.due(lane) == AT_ONCE:
            wake_lane(parts, lane, at_least=1)
