"""What ticks cost, kept in Redis for the metrics. Best effort: a Redis that is away, or was emptied, loses counts only."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redis import RedisError

if TYPE_CHECKING:
    import redis

    from voxint.gpu_phase.tick import Report

log = logging.getLogger(__name__)

KEY = "voxint:ticks"
OUTCOMES = ("saved", "first", "busy", "overtaken")


@dataclass(frozen=True, slots=True)
class TickCounts:
    """Ticks by outcome, and the seconds that all of them took; zero where nothing is known."""

    by_outcome: dict[str, int]
    seconds: float
    last_seconds: float | None


def record(client: redis.Redis, report: Report) -> None:
    """Count one tick."""
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.hincrby(KEY, report.outcome, 1)
            pipe.hincrbyfloat(KEY, "seconds", report.took_seconds)
            pipe.hset(KEY, "last", f"{report.took_seconds:.6f}")
            pipe.execute()
    except (RedisError, OSError) as error:
        log.warning("could not count a tick: %s", type(error).__name__)


def read(client: redis.Redis) -> TickCounts:
    """The counts so far.

    Raises:
        redis.RedisError: Redis is away.
    """
    found = cast("dict[str, Any]", client.hgetall(KEY))
    last = found.get("last")
    return TickCounts(
        {outcome: int(found.get(outcome, 0)) for outcome in OUTCOMES},
        float(found.get("seconds", 0)),
        None if last is None else float(last),
    )
