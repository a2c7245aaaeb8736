"""What keeps a stop from costing anything: the GPU goes back, and the work in hand goes back to the queue unharmed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.db import clock
from voxint.gpu_phase import queue
from voxint.gpu_phase.model import Phase, RequestKind
from voxint.standalone.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from voxint.wiring import Parts

OURS = frozenset({Phase.ACQUIRING, Phase.STARTING_SERVICES, Phase.AUDIO, Phase.DRAINING})
"""Where a `release` brings the GPU back sooner. In the later phases it is on its way already."""
_WHO = "standalone, which is stopping"


def hand_back(parts: Parts, limit_seconds: float, hurry: Callable[[], bool]) -> bool:
    """Ask for the GPU to go back to the language model, and wait until it has. The gpu-phase worker must still run.

    Args:
        parts: the database and the wake-ups.
        limit_seconds: how long to wait.
        hurry: True once the wait is to end at once.
    """

    def settled() -> bool:
        if hurry():
            return True
        stored = parts.phase_store.read()
        if stored is None or stored.state.phase in {Phase.LLM, Phase.DRAINING_POST}:
            return True
        if stored.state.phase in OURS and parts.phase_store.pending_request() is None:
            parts.phase_store.record_request(RequestKind.RELEASE, _WHO)
            parts.publisher.wake_phase()
        return False

    return wait_for(settled, limit_seconds, every_seconds=0.1) and not hurry()


def give_back_work(engine: Engine) -> int:
    """Put back what runs, without using an attempt: its workers were stopped on purpose, and are gone. Gives how much."""
    with engine.begin() as connection:
        now = clock.read(connection)
        rows = connection.execute(
            text("SELECT id, claim_token FROM work_item WHERE state = 'running' FOR UPDATE")
        ).all()
        for row in rows:
            queue.end_execution(connection, row.claim_token, "cut", "Voxint was stopped", now)
            queue.put_back(connection, row.id, now, uses_attempt=False)
    return len(rows)


def take_from_the_dead(engine: Engine, attempts: int) -> int:
    """Put back what still counts as running though no worker lives: the last stop was none. Gives how much."""
    with engine.begin() as connection:
        return queue.reap(connection, clock.read(connection), timedelta(0), attempts)
