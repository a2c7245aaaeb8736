"""Waking workers up. Best effort and bounded in time: what is lost is made good by the next tick or sweep."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import redis
from celery.exceptions import CeleryError
from kombu.exceptions import KombuError

from voxint.gpu_phase.model import Lane
from voxint.work.app import PUBLISH_TIMEOUT_SECONDS, make_app
from voxint.work.names import LANE_QUEUE, TICK_QUEUE, TICK_TASK, WORK_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

    from voxint.settings import Settings

log = logging.getLogger(__name__)

LANE_BATCH = 16
"""At most so many wake-ups wait in a lane's queue. Each goes on to a further one while there is work."""
SHORTEST_GAP = timedelta(milliseconds=50)
"""Extra ticks come no closer than this."""
LOST_AFTER = timedelta(seconds=2)
"""A wake-up that is overdue by so much was lost with its worker, and may be replaced."""
_KEY = "voxint:phase-wake"

# One wake-up is outstanding at a time: {token, due}. An earlier one replaces a later one, whose message then finds
# that its token is gone. `last` is when the newest one was taken. All times in ms, on Redis's clock.
_ASK = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = now + ARGV[2]
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
if last <= now and due < last + ARGV[3] then due = last + ARGV[3] end
local standing = tonumber(redis.call('HGET', KEYS[1], 'due') or '0')
if standing > 0 and standing <= due and standing > now - ARGV[4] then return -1 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'due', due)
redis.call('PEXPIRE', KEYS[1], due - now + 60000)
return due - now
"""
_TAKE = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'token', 'due')
redis.call('HSET', KEYS[1], 'last', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('PEXPIRE', KEYS[1], 60000)
return 1
"""
_TROUBLE = (redis.RedisError, KombuError, CeleryError, OSError)


class Publisher:
    """Sends wake-ups. Nothing here raises for a Redis that is away, slow, or empty."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.redis_url.get_secret_value()
        self._tick = settings.gpu_phase_tick_seconds
        self._app: Celery | None = None
        self._redis: redis.Redis | None = None

    @property
    def client(self) -> redis.Redis:
        """A connection to Redis that gives up after a second."""
        if self._redis is None:
            self._redis = redis.Redis.from_url(
                self._url,
                socket_timeout=PUBLISH_TIMEOUT_SECONDS,
                socket_connect_timeout=PUBLISH_TIMEOUT_SECONDS,
                decode_responses=True,
            )
        return self._redis

    def wake_phase(self, after: timedelta = timedelta(0), *, quiet: int = 0) -> bool:
        """Ask for an extra tick. Does nothing with sharing off, or where one at least as early is outstanding."""
        if not self._settings.gpu_phase_enabled or self._settings.gpu_phase_follow_up_seconds <= 0:
            return False
        token = secrets.token_hex(6)
        milliseconds = [str(int(span / timedelta(milliseconds=1))) for span in (after, SHORTEST_GAP, LOST_AFTER)]
        try:
            delay = cast("int", self.client.eval(_ASK, 1, _KEY, token, *milliseconds))
            if delay < 0:
                return False
            self._send(
                TICK_TASK,
                {"token": token, "quiet": quiet},
                TICK_QUEUE,
                countdown=delay / 1000 if delay > 0 else None,
                expires=delay / 1000 + self._tick,
            )
        except _TROUBLE as error:
            log.warning("could not ask for an extra tick: %s", _words(error))
            return False
        return True

    def take_phase_wake(self, token: str) -> bool:
        """Whether a wake-up that has arrived is the outstanding one. A replaced or repeated one is not."""
        try:
            return bool(self.client.eval(_TAKE, 1, _KEY, token))
        except _TROUBLE as error:
            log.warning("could not look up an extra tick: %s", _words(error))
            return False

    def wake_lane(self, lane: Lane, count: int = LANE_BATCH) -> int:
        """Send as many wake-ups to a lane's queue as it lacks to hold `count`. Gives how many were sent."""
        name = LANE_QUEUE[lane]
        try:
            missing = min(count, LANE_BATCH) - self.queue_length(name)
            for _ in range(missing):
                self._send(WORK_TASK, {"lane": lane.value}, name, expires=300)
        except _TROUBLE as error:
            log.warning("could not wake the %s lane's workers: %s", lane, _words(error))
            return 0
        return max(missing, 0)

    def wake_lane_later(self, lane: Lane, after: timedelta) -> bool:
        """One wake-up for work that comes up by itself after a while. Never more than one is on its way."""
        seconds = after.total_seconds()
        try:
            first = self.client.set(f"voxint:later:{lane}", "1", nx=True, px=int(seconds * 1000) + 1)
            if first:
                self._send(
                    WORK_TASK, {"lane": lane.value}, LANE_QUEUE[lane], countdown=seconds + 0.05, expires=seconds + 300
                )
        except _TROUBLE as error:
            log.warning("could not wake the %s lane's workers later: %s", lane, _words(error))
            return False
        return bool(first)

    def queue_length(self, name: str) -> int:
        """How many messages wait in a queue."""
        return cast("int", self.client.llen(name))

    def _send(self, task: str, kwargs: dict[str, object], queue: str, **options: object) -> None:
        if self._app is None:
            self._app = make_app(self._settings, publisher=True)
        self._app.send_task(task, kwargs=kwargs, queue=queue, retry=False, ignore_result=True, **options)


def wake_phase(settings: Settings) -> bool:
    """Ask for a tick after something that it should see: an operator's request, a new recording."""
    return Publisher(settings).wake_phase()


def wake_after_adding(settings: Settings) -> None:
    """A recording was queued: the phase may want to know, and an open lane's workers too."""
    publisher = Publisher(settings)
    publisher.wake_phase()
    publisher.wake_lane(Lane.GPU, 1)


def _words(error: BaseException) -> str:
    """The causes in a row, without addresses that may hold a password."""
    return " <- ".join(type(part).__name__ for part in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
