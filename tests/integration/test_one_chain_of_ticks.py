"""Never a second chain of extra ticks, and never a storm: two real gpu-phase workers, and everybody who asks at once."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta

import pytest
import redis
from sqlalchemy import text
from work_bench import sharing, work_bench

from voxint.settings import load_settings
from voxint.wiring import Parts
from voxint.work.names import TICK_QUEUE
from voxint.work.publish import SHORTEST_GAP, Publisher

pytestmark = pytest.mark.timeout(400)  # real workers start slowly on a busy machine
ASKING_SECONDS = 3
LOOKING_SECONDS = 10
LEFT_OVER_SECONDS = 5
"""How long a wake-up that was asked for in the rush may still come, or be found lost and replaced."""
IN_ONE_CHAIN = LOOKING_SECONDS + 2
"""How many ticks one chain makes in that time: it looks every second, and sooner only after a step."""


@pytest.fixture
def bench(processes, database_url, redis_url, tmp_path):
    with work_bench(processes, database_url, redis_url, tmp_path) as made:
        made.environ |= sharing(
            made.environ, GPU_PHASE_FOLLOW_UP_SECONDS="1", LLM_BASE_URL="http://127.0.0.1:9/v1", LLM_MODEL="m"
        )
        made.parts = Parts(load_settings(made.environ))
        with made.parts.engine.begin() as connection:
            # In llm, and nobody answers anything: as long as that lasts, each tick asks for one more.
            connection.execute(text("INSERT INTO gpu_phase (phase, phase_since) VALUES ('llm', voxint_now())"))
        yield made
        made.parts.close()


def ticks(bench):
    """How many ticks were made so far, by the lines that tell of them."""
    return sum(log.read_text().count(" tick outcome=saved") for log in logs(bench))


def logs(bench):
    return list(bench.processes.folder.glob("gpu-phase-*.log"))


def start(bench, eventually, workers, **more):
    for n in range(workers):
        bench.gpu_phase(name=f"gpu-phase-{n}", **more)
    eventually(lambda: all("ready." in log.read_text() for log in logs(bench)), 120)


def everybody_asks(bench, per_thread):
    """Six askers at once, as fast as they can."""
    settings = load_settings(bench.environ)
    until = time.monotonic() + ASKING_SECONDS

    def ask():
        publisher = Publisher(settings)
        asked = 0
        while time.monotonic() < until and asked < per_thread:
            publisher.wake_phase(timedelta(milliseconds=random.choice([0, 0, 0, 300, 2000])))
            asked += 1

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def deliver_again(bench):
    """Every message that waits is there a second and a third time."""
    with redis.Redis.from_url(bench.environ["REDIS_URL"]) as client:
        for raw in client.lrange(TICK_QUEUE, 0, -1):
            client.rpush(TICK_QUEUE, raw, raw)


def test_one_chain_whoever_asks_and_however_often(bench, eventually):
    """Also with two workers, and with messages that are delivered three times."""
    began = time.monotonic()
    for n in range(30):
        bench.parts.publisher.wake_phase(timedelta(seconds=2 - n % 3))
    deliver_again(bench)
    start(bench, eventually, 2)
    everybody_asks(bench, per_thread=10_000)
    in_the_rush = ticks(bench)
    took = time.monotonic() - began
    assert in_the_rush <= took / SHORTEST_GAP.total_seconds() + 2, "a storm"
    time.sleep(LEFT_OVER_SECONDS)
    before, looked_at = ticks(bench), time.monotonic()
    time.sleep(LOOKING_SECONDS)
    after = ticks(bench)
    made, looked = after - before, time.monotonic() - looked_at
    assert made <= IN_ONE_CHAIN + (looked - LOOKING_SECONDS), "a second chain"

    def goes_on():
        bench.parts.publisher.wake_phase()  # on a starved machine its message may have expired: a new one is taken
        return ticks(bench) > after

    eventually(goes_on, 90, "no tick comes any more")


def test_the_twin_without_tokens_makes_chains_without_number(bench, eventually):
    # One worker: of two ticks at the same time one finds the other at work, and its chain ends there.
    start(bench, eventually, 1, WITHOUT_TOKENS="1")
    for _ in range(12):
        bench.parts.publisher._send("voxint.gpu_phase_tick", {"token": "any", "quiet": 0}, TICK_QUEUE)
    eventually(lambda: ticks(bench) > 12, 120)
    before = ticks(bench)
    eventually(lambda: ticks(bench) - before > 2 * IN_ONE_CHAIN, 12 * LOOKING_SECONDS, "nothing to be found")


def test_a_random_life_of_wake_ups_never_has_two_outstanding(bench):
    """Asked, delivered, delivered again, late and out of order: each is answered once, and only the newest."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    draw = random.Random(seed)
    client = bench.parts.publisher.client
    sent, answered = [], []
    sender = bench.parts.publisher
    sender._send = lambda _task, kwargs, _queue, **_: sent.append(kwargs["token"])
    for _ in range(400):
        if draw.random() < 0.5:
            before = len(sent)
            asked = sender.wake_phase(timedelta(milliseconds=draw.choice([0, 50, 200, 1000, 30_000])))
            assert len(sent) - before == asked
            assert client.hget("voxint:phase-wake", "token") == sent[-1] or not asked
        elif sent:
            token = draw.choice(sent[-2:])
            standing = client.hget("voxint:phase-wake", "token")
            taken = sender.take_phase_wake(token)
            assert taken == (token == standing)
            if taken:
                answered.append(token)
    assert len(answered) == len(set(answered)) > 10
    assert len(set(sent)) == len(sent)
