"""Beat: which messages it sends how often, and that they never pile up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery.beat import Scheduler

from voxint.work.names import BEAT_KEY, BEAT_SILENT_SECONDS, SWEEP_QUEUE, SWEEP_TASK, TICK_QUEUE, TICK_TASK

if TYPE_CHECKING:
    from celery.beat import ScheduleEntry

    from voxint.settings import Settings
    from voxint.work.publish import Publisher

log = logging.getLogger(__name__)

MOST_WAITING = 3
"""Beat sends nothing to a queue in which so many messages wait: nobody consumes it, and a burst helps no one."""
SWEEP_SECONDS = 30.0


def entries(settings: Settings) -> dict[str, dict[str, Any]]:
    """Beat's schedule. Without sharing there is no tick in it."""
    schedule: dict[str, dict[str, Any]] = {
        "work-sweep": {
            "task": SWEEP_TASK,
            "schedule": min(SWEEP_SECONDS, settings.work_heartbeat_limit_seconds / 2),
            "options": {"queue": SWEEP_QUEUE, "expires": SWEEP_SECONDS},
        }
    }
    if settings.gpu_phase_enabled:
        schedule["gpu-phase-tick"] = {
            "task": TICK_TASK,
            "schedule": settings.gpu_phase_tick_seconds,
            "options": {"queue": TICK_QUEUE, "expires": settings.gpu_phase_tick_seconds},
        }
    return schedule


class BoundedScheduler(Scheduler):
    """Celery's scheduler without its file, and without an end to what it sends to a queue nobody reads."""

    publisher: Publisher

    def setup_schedule(self) -> None:
        """Take the schedule of the app, and nothing remembered."""
        self.install_default_entries(self.data)
        self.merge_inplace(self.app.conf.beat_schedule)

    def apply_async(  # the base class's own order, booleans and all
        self,
        entry: ScheduleEntry,
        producer: object = None,
        advance: bool = True,  # noqa: FBT001, FBT002
        **kwargs: object,
    ) -> object:
        """Send an entry's message, unless enough of them wait already or Redis is away."""
        queue = entry.options.get("queue", "")
        try:
            self.publisher.client.set(BEAT_KEY, "1", ex=BEAT_SILENT_SECONDS)
            waiting = self.publisher.queue_length(queue)
        except Exception as error:  # noqa: BLE001 - whatever Redis says: beat goes on and tries at the next time
            log.warning("beat cannot reach Redis: %s", type(error).__name__)
            self._skip(entry, advance=advance)
            return None
        if waiting >= MOST_WAITING:
            log.warning("beat sends no %s: %d messages wait in %s and nobody takes them", entry.task, waiting, queue)
            self._skip(entry, advance=advance)
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **kwargs)

    def _skip(self, entry: ScheduleEntry, *, advance: bool) -> None:
        if advance:
            self.reserve(entry)
