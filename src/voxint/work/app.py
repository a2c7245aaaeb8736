"""The Celery app. Nothing happens at import: an app is made from settings where one is needed."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from celery import Celery
from kombu import Exchange, Queue

from voxint.work.names import LANE_QUEUE, SWEEP_QUEUE, SWEEP_TASK, TICK_QUEUE, TICK_TASK, WORK_TASK

if TYPE_CHECKING:
    from voxint.settings import Settings

PUBLISH_TIMEOUT_SECONDS = 1.0
"""How long a publisher may wait for Redis: messages only wake workers up, and the database has the work."""

GONE_SECONDS = 30
"""After so long without an answer over a network Redis counts as gone, and a worker connects anew. Unix sockets ignore it."""


def make_app(settings: Settings, *, publisher: bool = False) -> Celery:
    """An app bound to the settings' Redis.

    Args:
        settings: where Redis is.
        publisher: for one that only sends: it gives up on a silent Redis after a second.
    """
    app = Celery("voxint", broker=transport_url(settings.redis_url.get_secret_value()), set_as_current=not publisher)
    options: dict[str, Any] = {
        "visibility_timeout": settings.visibility_timeout_seconds,
        "socket_keepalive": True,
        "socket_keepalive_options": _keepalive(),
    }
    if publisher:
        options |= {
            "socket_timeout": PUBLISH_TIMEOUT_SECONDS,
            "socket_connect_timeout": PUBLISH_TIMEOUT_SECONDS,
            "max_retries": 0,
            "retry_on_timeout": False,
        }
    app.conf.update(
        broker_transport_options=options,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=PUBLISH_TIMEOUT_SECONDS if publisher else 4.0,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # A message is a wake-up call. It is answered when it arrives; the claim in the database decides everything.
        task_acks_late=False,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        # A worker whose processes are all busy leaves the wake-ups to others: what it took would wait here for hours.
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_default_queue=SWEEP_QUEUE,
        task_queues=[_queue(name) for name in (TICK_QUEUE, *LANE_QUEUE.values(), SWEEP_QUEUE)],
        task_routes={TICK_TASK: {"queue": TICK_QUEUE}, SWEEP_TASK: {"queue": SWEEP_QUEUE}, WORK_TASK: {}},
        task_serializer="json",
        accept_content=["json"],
        timezone="UTC",
        enable_utc=True,
    )
    return app


def _keepalive() -> dict[int, int]:
    """A worker only listens: without this it would wait for ever for a Redis whose host was switched off.

    Other systems than Linux name and know fewer of these.
    """
    wanted = {
        "TCP_KEEPIDLE": GONE_SECONDS // 2,
        "TCP_KEEPINTVL": GONE_SECONDS // 6,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": GONE_SECONDS * 1000,
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def _queue(name: str) -> Queue:
    """A queue with an exchange of its own: by default all would share one, and each message go to every queue."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def transport_url(url: str) -> str:
    """The address as Celery wants it: `unix://` sockets are `redis+socket://` there."""
    return "redis+socket://" + url.removeprefix("unix://") if url.startswith("unix://") else url
