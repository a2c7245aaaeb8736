"""Wake-ups through a real Redis: one outstanding, none doubled, and no waiting for a Redis that is away."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
import redis

from voxint.gpu_phase.model import Lane
from voxint.settings import load_settings
from voxint.work.names import LANE_QUEUE, TICK_QUEUE
from voxint.work.publish import LANE_BATCH, SHORTEST_GAP, Publisher
from voxint.work.schedule import MOST_WAITING, BoundedScheduler, entries

FOLLOW_UP = "GPU_PHASE_FOLLOW_UP_SECONDS"


def make_settings(redis_url, **more):
    return load_settings(
        {
            "REDIS_URL": redis_url,
            "COMPUTE_TIER": "simulated",
            "GPU_PHASE_ENABLED": "true",
            "GPU_PHASE_FOLLOW_UP_SECONDS": "1",
            "GPU_LEASE_ACQUIRE_URL": "http://127.0.0.1:9/a",
            "GPU_LEASE_RELEASE_URL": "http://127.0.0.1:9/r",
            "GPU_LEASE_STATUS_URL": "http://127.0.0.1:9/s",
        }
        | more
    )


@pytest.fixture
def settings(redis_url):
    return make_settings(redis_url)


@pytest.fixture
def publisher(settings):
    return Publisher(settings)


@pytest.fixture
def server(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def messages(server, queue=TICK_QUEUE):
    return [json.loads(raw) for raw in server.lrange(queue, 0, -1)]


def token(publisher):
    return publisher.client.hget("voxint:phase-wake", "token")


def test_however_many_ask_one_is_outstanding(server, publisher):
    assert publisher.wake_phase()
    assert not any(publisher.wake_phase() for _ in range(200))
    assert server.llen(TICK_QUEUE) == 1


def test_askers_at_the_same_time_get_one_between_them(settings, server):
    got = []
    start = threading.Barrier(8)

    def ask():
        own = Publisher(settings)
        start.wait()
        got.append(own.wake_phase())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 1
    assert server.llen(TICK_QUEUE) == 1


def test_an_earlier_one_replaces_a_later_one_whose_message_then_counts_for_nothing(server, publisher):
    assert publisher.wake_phase(timedelta(seconds=20))
    later = token(publisher)
    assert publisher.wake_phase()
    sooner = token(publisher)
    assert sooner != later
    assert not publisher.take_phase_wake(later)
    assert publisher.take_phase_wake(sooner)
    assert not publisher.take_phase_wake(sooner), "a message that is delivered twice is answered once"
    assert server.llen(TICK_QUEUE) == 2


def test_a_later_one_does_not_replace_an_earlier_one(publisher):
    assert publisher.wake_phase(timedelta(seconds=1))
    assert not publisher.wake_phase(timedelta(seconds=5))


def test_one_that_was_lost_with_its_worker_is_replaced_after_two_seconds(publisher):
    assert publisher.wake_phase()
    assert not publisher.wake_phase()
    time.sleep(2.1)
    assert publisher.wake_phase()


def test_extra_ticks_keep_their_distance(server, publisher, monkeypatch):
    assert timedelta(milliseconds=50) == SHORTEST_GAP
    monkeypatch.setattr("voxint.work.publish.SHORTEST_GAP", timedelta(minutes=2))  # no machine stalls for that long
    publisher.wake_phase()
    assert messages(server)[0]["headers"]["eta"] is None
    taken = datetime.now(UTC)
    assert publisher.take_phase_wake(token(publisher))
    assert publisher.wake_phase()
    (newest, _) = messages(server)
    eta = datetime.fromisoformat(newest["headers"]["eta"])
    assert timedelta(minutes=1, seconds=59) < eta - taken < timedelta(minutes=3)


def test_flushall_loses_nothing_but_the_wake_up(server, publisher):
    publisher.wake_phase(timedelta(seconds=20))
    server.flushall()
    assert publisher.wake_phase()


def test_follow_ups_off_and_sharing_off_send_nothing(redis_url, server):
    assert not Publisher(make_settings(redis_url, GPU_PHASE_FOLLOW_UP_SECONDS="0")).wake_phase()
    assert not Publisher(make_settings(redis_url, GPU_PHASE_ENABLED="false")).wake_phase()
    assert server.llen(TICK_QUEUE) == 0


@pytest.mark.skipif(FOLLOW_UP not in os.environ, reason="only make test-no-wake-ups takes the wake-ups away")
def test_the_suite_without_wake_ups_has_none():
    assert float(os.environ[FOLLOW_UP]) == load_settings({}).gpu_phase_follow_up_seconds == 0


def test_a_lane_is_topped_up_and_never_beyond_its_batch(server, publisher):
    name = LANE_QUEUE[Lane.GPU]
    assert publisher.wake_lane(Lane.GPU, 3) == 3
    assert publisher.wake_lane(Lane.GPU, 3) == 0
    assert publisher.wake_lane(Lane.GPU, 10_000) == LANE_BATCH - 3
    assert server.llen(name) == LANE_BATCH


def test_a_redis_that_is_away_or_silent_costs_seconds_and_raises_nothing(settings, server):
    away = Publisher(make_settings("redis://127.0.0.1:1/0"))
    began = time.monotonic()
    assert not away.wake_phase()
    assert away.wake_lane(Lane.GPU) == 0
    assert time.monotonic() - began < 3
    server.execute_command("CLIENT", "PAUSE", "4000", "ALL")
    began = time.monotonic()
    silent = Publisher(settings)
    assert not silent.wake_phase()
    assert silent.wake_lane(Lane.GPU) == 0
    assert time.monotonic() - began < 6
    time.sleep(max(0, 4.2 - (time.monotonic() - began)))


def test_beat_sends_nothing_to_a_queue_that_nobody_reads(settings, server):
    """Fault 4: the publisher is called 2,000 times, and the list stays short."""
    from voxint.work.app import make_app

    app = make_app(settings)
    app.conf.beat_schedule = entries(settings)
    scheduler_class = type("Bound", (BoundedScheduler,), {"publisher": Publisher(settings)})
    scheduler = scheduler_class(app=app, lazy=False)
    entry = scheduler.schedule["gpu-phase-tick"]
    for _ in range(2000):
        scheduler.apply_async(entry)
    assert server.llen(TICK_QUEUE) == MOST_WAITING


def test_each_message_goes_to_one_queue_also_when_workers_have_declared_them_all(settings, server, publisher):
    from voxint.work.app import make_app

    app = make_app(settings)
    with app.connection_for_write() as connection:
        for queue in app.amqp.queues.values():
            queue(connection.default_channel).declare()
    publisher.wake_phase()
    publisher.wake_lane(Lane.POST, 2)
    lengths = {name: server.llen(name) for name in app.amqp.queues}
    assert lengths == {TICK_QUEUE: 1, LANE_QUEUE[Lane.GPU]: 0, LANE_QUEUE[Lane.POST]: 2, "voxint_sweep": 0}


def test_without_sharing_beat_has_no_tick(redis_url):
    assert "gpu-phase-tick" in entries(make_settings(redis_url))
    assert "gpu-phase-tick" not in entries(make_settings(redis_url, GPU_PHASE_ENABLED="false"))
