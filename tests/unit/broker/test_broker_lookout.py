"""While nothing is switched: a service that is down is never called free without a reason, and strangers on the GPU are told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from simulated_broker import World, running

from voxint_broker.memory.reading import Card, Holder, Reading
from voxint_broker.simulated import Behaviour, SimulatedService


def honest(world):
    """The status now, which must not call a service that is down ready."""
    status = world.broker.status()
    if status["phase"] == "free" and status["services"]["simulated"]["condition"] != "running":
        assert status["reason"], status
    return status


def test_a_service_that_ends_is_in_the_next_status_and_comes_back(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        for _ in range(20):
            world.until(lambda: world.service.runs and world.broker.status()["phase"] == "free")
            world.broker._restarts = 0  # no pause between two starts
            world.service.end()
            honest(world)
            world.broker._stir()
        world.until(lambda: honest(world)["phase"] == "free" and world.service.runs)
        assert honest(world)["reason"] is None


@dataclass
class Ephemeral(SimulatedService):
    """A service that is gone as soon as it was seen to run, for some starts."""

    short_lives: int = 0

    def start(self):
        super().start()
        if self.starts <= self.short_lives:
            self.end()


def test_a_service_that_answered_and_died_within_moments_is_never_called_ready(tmp_path):
    with running(tmp_path, service=Ephemeral(short_lives=1)) as world:
        world.until(lambda: honest(world)["services"]["simulated"]["condition"] == "running")
        assert world.service.starts == 2
        world.until_phase("free")


def test_while_it_waits_with_the_next_start_the_reason_stands(tmp_path):
    with running(tmp_path, service=Ephemeral(short_lives=10**6)) as world:
        world.until(lambda: world.broker._restarts >= 2, "the second restart, which waits")
        for _ in range(50):
            assert not (honest(world)["phase"] == "free" and world.broker.problem() is None)


def test_a_service_that_is_not_ours_to_start_is_told_once_and_until_it_is_back(tmp_path, caplog):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.service.keep_running = False
        world.service.end()
        assert "keep_running is off" in honest(world)["reason"]
        assert "simulated does not run" in world.broker.problem()
        world.until(lambda: "simulated does not run" in caplog.text)
        for _ in range(3):
            world.broker._stir()
            world.until(lambda: not world.broker._stirred)
        assert caplog.text.count("simulated does not run") == 1
        world.service.start()
        assert honest(world)["reason"] is None
        assert world.broker.problem() is None


def test_a_service_that_cannot_be_looked_at_is_not_called_ready(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.service.behaviour.look_fails = "the engine does not answer"
        assert "it cannot be told whether simulated runs: the engine does not answer" in honest(world)["reason"]
        world.service.behaviour.look_fails = ""
        assert honest(world)["reason"] is None


def test_an_error_is_a_problem_and_a_lease_is_none(tmp_path):
    with running(tmp_path, retry_seconds=60) as world:
        lease = world.granted()
        assert world.broker.problem() is None
        world.service.behaviour.start_fails = "no such model"
        world.release(lease)
        world.until_phase("error")
        assert "no such model" in world.broker.problem()


# --- who else is on the GPU -----------------------------------------------------------------------------------


@dataclass
class Watched(SimulatedService):
    """A service whose card tells which processes use it."""

    on_the_gpu: list[Holder] = field(default_factory=list)

    def read(self):
        plain = super().read()
        return Reading(plain.enough, plain.detail, (Card("GPU 0", 7000, 8000, tuple(self.on_the_gpu)),))


GAME = Holder(77, "game", 300)
WHISPER = Holder(78, "python3 voxint_models.whisper", 3000)


@pytest.mark.parametrize("programs", [(), ("voxint_models",)])
def test_who_was_on_the_gpu_before_the_lease_is_reported_and_its_own_work_is_not(tmp_path, caplog, programs):
    service = Watched(on_the_gpu=[GAME])
    with running(tmp_path, service=service, lease_programs=programs) as world:
        world.granted()
        service.on_the_gpu.append(WHISPER)
        status = world.until(lambda: (now := world.broker.status())["foreign"] and now)
        assert status["foreign"] == ["process 77 (game, 300 MiB)"]
        assert status["free_mib"] == 7000
        world.until(lambda: "process 77 (game) uses the GPU's memory beside the lease" in caplog.text)
        assert "whisper" not in caplog.text
        service.on_the_gpu.remove(GAME)
        world.until(lambda: not world.broker.status()["foreign"])


def test_who_comes_during_the_lease_is_reported_where_its_programs_are_named(tmp_path, caplog):
    service = Watched()
    with running(tmp_path, service=service, lease_programs=("voxint_models",)) as world:
        world.granted()
        service.on_the_gpu += [WHISPER, Holder(79, "ollama", None)]
        world.until(lambda: world.broker.status()["foreign"] == ["process 79 (ollama)"])
        world.until(lambda: "process 79 (ollama)" in caplog.text)


def test_a_next_lease_begins_with_another_list(tmp_path):
    service = Watched(on_the_gpu=[GAME])
    with running(tmp_path, service=service, lease_programs=()) as world:
        lease = world.granted()
        status = world.until(lambda: (now := world.broker.status())["foreign"] and now)
        assert status["free_mib"] == 7000
        world.released(lease)
        status = world.broker.status()
        assert status["foreign"] == []  # beside a lease that is over there is nobody
        assert status["free_mib"] is None  # what was read before the service started is no more so
        service.on_the_gpu.clear()
        world.granted()
        service.on_the_gpu.append(GAME)
        world.until(lambda: world.broker._switch.last.holders)
        assert world.broker.status()["foreign"] == []


def test_a_lock_that_stands_for_the_gpu_is_not_touched_during_a_lease(tmp_path):
    service = Watched()
    with running(tmp_path, service=service) as world:
        world.granted()
        reads = []
        service.read = lambda: reads.append(1)
        for _ in range(3):
            world.broker._stir()
            world.until(lambda: not world.broker._stirred)
        assert reads == []


def test_news_of_a_service_end_a_rest_at_once(tmp_path):
    with running(tmp_path, Behaviour(), look_seconds=3600) as world:
        world.granted()
        world.service.start()
        world.broker._stir()
        world.until(lambda: world.service.look().condition.value != "running", "the door is shut again")


def test_the_world_is_quiet_in_the_end(tmp_path):
    world = World(tmp_path)
    world.broker.start()
    world.until_phase("free")
    world.broker.stop(stop_services=False)
    assert not world.broker._thread.is_alive()
