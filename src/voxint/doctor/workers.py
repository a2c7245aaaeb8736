"""Checks of the processes that work: somebody consumes each queue, and beat sends its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.exceptions import CeleryError
from kombu.exceptions import KombuError
from redis import RedisError

from voxint.doctor.finding import Finding, Severity
from voxint.gpu_phase.wording.phases import not_run_since
from voxint.work.app import make_app
from voxint.work.names import BEAT_KEY, SWEEP_QUEUE, TICK_QUEUE, WORK_QUEUES

if TYPE_CHECKING:
    from voxint.doctor.checks import Surroundings
    from voxint.settings import Settings

ANSWER_SECONDS = 1.5
"""How long workers get to say which queues they consume; twice as long where one is missing."""
_TROUBLE = (RedisError, KombuError, CeleryError, OSError)


def workers(around: Surroundings) -> list[Finding]:
    """Each queue has a consumer."""
    settings = around.parts.settings
    wanted = (*WORK_QUEUES, TICK_QUEUE) if settings.gpu_phase_enabled else WORK_QUEUES
    try:
        consumers = consumers_by_queue(settings, ANSWER_SECONDS)
        if not consumers.keys() >= set(wanted):  # a machine that is busy may take longer to answer
            consumers = consumers_by_queue(settings, 2 * ANSWER_SECONDS)
        waiting = {queue: around.parts.publisher.queue_length(queue) for queue in (*WORK_QUEUES, TICK_QUEUE)}
    except _TROUBLE as error:
        text = f"could not ask the workers: Redis is away ({type(error).__name__})"
        return [Finding("worker", Severity.FAIL, text)]
    found = [_of_queue("worker", queue, consumers.get(queue, []), waiting[queue]) for queue in WORK_QUEUES]
    if settings.gpu_phase_enabled:
        found.append(_of_queue("gpu-phase worker", TICK_QUEUE, consumers.get(TICK_QUEUE, []), waiting[TICK_QUEUE]))
    return found


def consumers_by_queue(settings: Settings, seconds: float) -> dict[str, list[str]]:
    """Which workers consume which queue, as they say themselves within so many seconds."""
    app = make_app(settings, publisher=True)
    answers = app.control.inspect(timeout=seconds).active_queues() or {}
    found: dict[str, list[str]] = {}
    for worker, queues in answers.items():
        for queue in queues:
            found.setdefault(queue["name"], []).append(worker)
    return found


def _of_queue(kind: str, queue: str, consumers: list[str], waiting: int) -> Finding:
    code = f"{kind} {queue}"
    if consumers:
        return Finding(code, Severity.OK, ", ".join(sorted(consumers)))
    start = "voxint worker --gpu-phase" if queue == TICK_QUEUE else "voxint worker"
    wait = f" ({waiting} messages wait)" if waiting else ""
    return Finding(code, Severity.FAIL, f"no worker consumes the queue {queue}{wait}: start `{start}`")


def beat(around: Surroundings) -> list[Finding]:
    """Beat sends messages; with sharing on, ticks arrive."""
    try:
        alive = bool(around.parts.publisher.client.exists(BEAT_KEY))
    except _TROUBLE as error:
        return [Finding("beat", Severity.FAIL, f"could not be asked about: Redis is away ({type(error).__name__})")]
    if not alive:
        return [Finding("beat", Severity.FAIL, f"nothing was sent to {SWEEP_QUEUE} lately: start `voxint beat`")]
    view = around.view
    if view is None or not view.enabled:
        return [Finding("beat", Severity.OK, "sends its messages")]
    if view.state is None or view.silent:
        text = f"sends ticks, but none is consumed: {not_run_since(view, None)}"
        return [Finding("beat", Severity.WARN, text)]
    return [Finding("beat", Severity.OK, "ticks arrive")]
