"""Simulated days: the product's own rules, so what a setting promises must be seen in them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.simulate import Arrival, Simulation, World, least_away, quantile

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
POLICY = Policy()
WORLD = World()


def arrivals(*minutes, gpu=2 * MINUTE, post=MINUTE):
    return [Arrival(BEGIN + minute * MINUTE, gpu, post) for minute in minutes]


def run(recordings, policy=POLICY, world=WORLD, length=timedelta(hours=4), follow_up=SECOND):
    return Simulation(policy, world, follow_up, BEGIN).run(recordings, length)


def test_without_recordings_the_language_model_is_never_away():
    found = run([])
    assert (found.turns, found.llm_away, found.unfinished) == (0, timedelta(0), 0)
    assert found.phases == {Phase.LLM: timedelta(hours=4)}


def test_a_recording_is_heard_and_done_after_one_turn():
    found = run(arrivals(30))
    assert (found.turns, found.unfinished) == (1, 0)
    (heard,), (done,) = found.heard, found.done
    way_there = WORLD.llm_stop + WORLD.services_start
    assert way_there + 2 * MINUTE <= heard <= way_there + 2 * MINUTE + POLICY.tick + 10 * SECOND
    # audio lasts for min dwell at least, and then the language model comes back and mends the transcript
    assert POLICY.min_dwell < done < POLICY.min_dwell + WORLD.turn + 2 * MINUTE + 2 * POLICY.tick
    assert sum(found.phases.values(), timedelta(0)) == found.length


def test_no_recording_is_lost_and_the_gpu_goes_back():
    found = run(arrivals(*range(0, 60, 3)))
    assert len(found.heard) == len(found.done) == 20
    assert found.llm_away >= least_away(arrivals(*range(0, 60, 3)), WORLD)


def test_a_longer_dwell_means_fewer_turns_and_longer_waits():
    recordings = arrivals(*range(0, 720, 20))
    day = timedelta(hours=14)
    short = run(recordings, replace(POLICY, min_dwell=2 * MINUTE), length=day)
    long = run(recordings, replace(POLICY, min_dwell=60 * MINUTE), length=day)
    assert long.turns < short.turns
    assert quantile(long.heard, 0.95) > quantile(short.heard, 0.95)


def test_max_audio_gives_the_language_model_its_turn_under_a_backlog():
    recordings = arrivals(*([0] * 100))
    found = run(recordings, replace(POLICY, max_audio=30 * MINUTE, min_dwell=10 * MINUTE), length=timedelta(hours=6))
    assert found.turns >= 4
    assert found.phases[Phase.LLM] >= (found.turns - 1) * 10 * MINUTE, "each stay in llm lasts for min dwell"
    assert found.done, "what was heard is mended between the windows"


def test_without_extra_ticks_a_turn_takes_longer():
    slow, quick = run(arrivals(30), follow_up=timedelta(0)), run(arrivals(30))
    assert slow.heard[0] > quick.heard[0]
    assert slow.llm_away > quick.llm_away


def test_the_unused_time_is_that_of_the_changes_and_of_the_dwell():
    found = run(arrivals(30))
    assert found.unused == found.llm_away - 2 * MINUTE
    assert found.share(found.unused) == pytest.approx(found.unused / timedelta(hours=4))


def test_quantiles():
    assert quantile([], 0.5) is None
    waits = [n * SECOND for n in range(1, 11)]
    assert (quantile(waits, 0.5), quantile(waits, 0.95), quantile(waits[:1], 0.95)) == (6 * SECOND, 10 * SECOND, SECOND)
