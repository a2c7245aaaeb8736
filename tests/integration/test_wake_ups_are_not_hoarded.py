"""A worker whose processes are all busy leaves the lane's wake-ups in the queue, where another worker finds them."""

from __future__ import annotations

import pytest
from work_bench import work_bench

from voxint.gpu_phase.model import Lane
from voxint.work.names import LANE_QUEUE

pytestmark = pytest.mark.timeout(400)  # real workers start slowly on a busy machine


@pytest.fixture
def bench(processes, database_url, redis_url, tmp_path):
    with work_bench(processes, database_url, redis_url, tmp_path) as made:
        yield made


def test_a_busy_worker_leaves_the_wake_ups_to_others(bench, eventually):
    runs = [bench.add("sleep 600 stage=acquire") for _ in range(2)]
    bench.worker(1, name="busy")
    bench.wake(1)
    eventually(lambda: len(bench.stages()) == 1, 60, "the first worker took nothing up")
    assert bench.parts.publisher.wake_lane(Lane.GPU, 1) == 1
    bench.worker(1, name="idle")
    eventually(lambda: len(bench.stages()) == 2, 60, "the wake-up lies with the worker that has no process for it")
    assert sorted(bench.stages()) == [(run, "acquire") for run in runs]
    assert bench.parts.publisher.queue_length(LANE_QUEUE[Lane.GPU]) == 0
