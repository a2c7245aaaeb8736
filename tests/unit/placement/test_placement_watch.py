"""What a tick makes of the devices: warn, restart or abort; once a start and no more; and nothing of what tells nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import OperationalError

from voxint.gpu_phase.model import Condition, Phase, PhaseState, ServiceSeen
from voxint.services.placement.judge import Observation, Timing, Verdict
from voxint.services.placement.watch import PlacementWatch
from voxint.settings import load_settings

NOON = datetime(2026, 9, 25, 12, tzinfo=UTC)
STARTING = PhaseState(Phase.STARTING_SERVICES, NOON, lease_id="b7c1")
AUDIO = PhaseState(Phase.AUDIO, NOON, lease_id="b7c1")
ON_CPU, ON_CUDA, SILENT = Observation(device="cpu"), Observation(device="cuda:0"), Observation()
SLOW = Observation(probe=Timing(84, "characters", 1000))


class Store:
    def __init__(self):
        self.recorded = []
        self.counted = {}

    def record(self, judgement):
        self.recorded.append(judgement)

    def restarts(self, service, since):
        return self.counted.get((service, since), 0)

    def count_restart(self, service, since):
        self.counted[service, since] = self.restarts(service, since) + 1


class Services:
    def __init__(self, store):
        self.store = store
        self.stopped = []
        self.takes = 1
        """How many calls a service needs to stop."""

    def stop(self, only=None):
        assert self.store.counted, "a restart is counted before it is made"
        self.stopped.append(only)

    def inspect(self):
        done = len(self.stopped) % self.takes == 0
        condition = Condition.STOPPED if done else Condition.RUNNING
        return tuple(ServiceSeen(name, condition) for name in ("whisper", "pyannote", "titanet", "speaches"))


class World:
    def __init__(self, action="warn", tier="gpu", **settings):
        environ = {"GPU_PLACEMENT_ACTION": action, "COMPUTE_TIER": tier, **settings}
        self.store = Store()
        self.services = Services(self.store)
        self.seen = {"whisper": ON_CUDA, "pyannote": ON_CUDA, "titanet": ON_CUDA}
        self.asked = []
        self.watch = PlacementWatch(load_settings(environ), self.store, self.services, look_at=self.look_at)

    def look_at(self, names, warmed):
        self.asked.append(tuple(names))
        return {name: self.seen[name] for name in names}

    def look(self, state=STARTING, *, healthy=True, condition=Condition.RUNNING):
        names = ("whisper", "pyannote", "titanet")
        before = tuple(ServiceSeen(name, condition, healthy=healthy, detail="answers") for name in names)
        return dict(zip(names, self.watch.look(before, state), strict=True))


def said(services):
    return [service.placement for service in services.values() if service.placement]


def test_all_as_expected_is_silent_and_kept():
    world = World()
    services = world.look()
    assert said(services) == []
    assert all(service.healthy for service in services.values())
    assert [judgement.verdict for judgement in world.store.recorded] == [Verdict.OK] * 3


def test_warn_says_it_and_audio_begins():
    world = World("warn")
    world.seen["pyannote"] = ON_CPU
    services = world.look()
    assert said(services) == ["pyannote runs on cpu, expected cuda"]
    assert all(service.healthy and not service.barred for service in services.values())
    assert world.services.stopped == []


def test_restart_stops_that_service_alone_and_then_goes_on_with_a_warning():
    world = World("restart")
    world.seen["pyannote"] = ON_CPU
    services = world.look()
    assert world.services.stopped == [{"pyannote"}]
    assert not services["pyannote"].healthy
    assert services["pyannote"].detail == "is restarted: it ran on cpu"
    assert services["whisper"].healthy
    again = world.look()
    assert world.services.stopped == [{"pyannote"}]
    assert said(again) == ["pyannote runs on cpu, expected cuda (1 restart tried)"]
    assert all(service.healthy and not service.barred for service in again.values())


def test_a_process_that_still_stops_is_not_taken_for_the_new_one():
    world = World("abort")
    world.services.takes = 3
    world.seen["pyannote"] = ON_CPU
    for _ in range(3):
        services = world.look()
        assert not services["pyannote"].healthy
        assert not services["pyannote"].barred
    assert world.services.stopped == [{"pyannote"}] * 3
    assert sum(world.store.counted.values()) == 1
    world.seen["pyannote"] = ON_CUDA
    assert said(world.look()) == ["pyannote came up on the wrong device, and runs on cuda after 1 restart"]


def test_once_it_was_seen_down_the_next_one_to_answer_is_new():
    world = World("restart")
    world.services.takes = 100
    world.seen["pyannote"] = ON_CPU
    world.look()
    world.look(healthy=False)
    assert said(world.look()) == ["pyannote runs on cpu, expected cuda (1 restart tried)"]
    assert world.services.stopped == [{"pyannote"}]


def test_a_restart_that_helps_is_told_in_the_history():
    world = World("restart")
    world.seen["pyannote"] = ON_CPU
    world.look()
    world.seen["pyannote"] = ON_CUDA
    assert said(world.look()) == ["pyannote came up on the wrong device, and runs on cuda after 1 restart"]


def test_abort_restarts_within_the_cap_and_then_bars_the_start():
    world = World("abort")
    world.seen["pyannote"] = ON_CPU
    first = world.look()
    assert not any(service.barred for service in first.values())
    second = world.look()
    assert [name for name, service in second.items() if service.barred] == ["pyannote"]
    assert said(second) == ["pyannote runs on cpu, expected cuda (1 restart tried)"]


@pytest.mark.parametrize(("cap", "restarts"), [("0", 0), ("1", 1), ("3", 3)])
def test_never_more_restarts_than_the_cap(cap, restarts):
    world = World("restart", GPU_PLACEMENT_MAX_RESTARTS=cap)
    world.seen["titanet"] = ON_CPU
    for _ in range(8):
        services = world.look()
    assert world.services.stopped == [{"titanet"}] * restarts
    assert services["titanet"].healthy


def test_the_cap_counts_for_each_start_anew():
    world = World("restart")
    world.seen["pyannote"] = ON_CPU
    for _ in range(3):
        world.look()
    next_window = PhaseState(Phase.STARTING_SERVICES, NOON + timedelta(hours=2), lease_id="c9")
    for _ in range(3):
        world.look(next_window)
    assert world.services.stopped == [{"pyannote"}] * 2


def test_off_looks_at_nothing():
    world = World("off")
    world.seen["pyannote"] = ON_CPU
    assert said(world.look()) == []
    assert world.asked == []
    assert world.store.recorded == []


@pytest.mark.parametrize("action", ["warn", "restart", "abort"])
def test_in_mid_window_it_is_said_and_nothing_is_done(action):
    world = World(action)
    world.seen["pyannote"] = ON_CPU
    for _ in range(3):
        services = world.look(AUDIO)
    assert said(services) == ["pyannote runs on cpu, expected cuda"]
    assert not any(service.barred for service in services.values())
    assert world.services.stopped == []


SILENCE = [
    ("nothing tells", "gpu", SILENT),
    ("a name that tells nothing", "gpu", Observation(device="auto")),
    ("an echo", "gpu", Observation(device="cpu", echoed=True)),
    ("a bare context", "gpu", Observation(gpu_bytes=570 << 20)),
    ("rows that cannot be seen", "gpu", Observation(gpu_bytes=None)),
    ("a short text", "gpu", Observation(probe=Timing(20, "characters", 1000, tells=False))),
    ("a speed with nothing to compare it with", "gpu", Observation(probe=Timing(84, "characters"))),
    ("the cpu tier", "cpu", ON_CPU),
    ("the metal tier", "metal", ON_CPU),
    ("the simulated tier", "simulated", ON_CPU),
]


@pytest.mark.parametrize(("why", "tier", "seen"), SILENCE, ids=[row[0] for row in SILENCE])
@pytest.mark.parametrize("action", ["warn", "restart", "abort"])
@pytest.mark.parametrize("state", [STARTING, AUDIO], ids=["starting", "audio"])
def test_no_alarm_where_nothing_is_wrong(why, tier, seen, action, state):
    world = World(action, tier)
    world.seen = dict.fromkeys(world.seen, seen)
    services = world.look(state)
    assert said(services) == []
    assert all(service.healthy and not service.barred for service in services.values())
    assert world.services.stopped == []


@pytest.mark.parametrize("action", ["warn", "restart", "abort"])
def test_and_the_twin_of_each_alarms(action):
    for tier, name in (("gpu", "whisper"), ("gpu", "titanet"), ("rocm", "whisper")):
        world = World(action, tier)
        world.seen[name] = ON_CPU
        world.look()
        services = world.look()
        assert len(said(services)) == 1, (tier, name)
        assert any(service.barred for service in services.values()) == (action == "abort")


def test_on_rocm_the_two_that_stay_on_the_cpu_are_left_alone():
    world = World("abort", "rocm")
    world.seen |= {"pyannote": ON_CPU, "titanet": ON_CPU, "whisper": Observation(device="hip:0")}
    assert said(world.look()) == []
    world.seen["whisper"] = ON_CPU
    world.look()
    assert said(world.look()) == ["whisper runs on cpu, expected gpu (1 restart tried)"]


@pytest.mark.parametrize("action", ["restart", "abort"])
def test_slow_is_said_and_never_acted_on(action):
    world = World(action)
    world.seen["whisper"] = SLOW
    for _ in range(3):
        services = world.look()
    assert said(services) == ["whisper is slow: 84 characters/s, where this GPU does 1,000"]
    assert all(service.healthy and not service.barred for service in services.values())
    assert world.services.stopped == []


def test_a_service_that_is_not_up_yet_is_not_looked_at():
    world = World("abort")
    world.seen = dict.fromkeys(world.seen, ON_CPU)
    services = world.look(healthy=False)
    assert world.asked == []
    assert all(service.detail == "answers" for service in services.values())
    world.look(AUDIO, condition=Condition.STOPPED)
    world.look(AUDIO, condition=Condition.UNKNOWN)
    assert world.asked == []


def test_a_service_of_which_nothing_is_expected_is_not_asked():
    world = World(GPU_PLACEMENT_EXPECT="whisper=any,titanet=any")
    world.look()
    assert world.asked == [("pyannote",)]


def test_a_database_that_is_gone_stops_no_tick():
    world = World("abort")

    def gone(*_):
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    world.store.record = gone
    services = world.look()
    assert all(service.healthy for service in services.values())


# --- services that say "healthy" before their model is loaded ---------------------------------------------------------


class WarmUpsToldWhatToSay:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.turns = []

    def waits_for(self, service, turn):
        self.turns.append(turn)
        return self.answers.pop(0) if self.answers else None


def warm_world(action, *answers):
    environ = {"GPU_PHASE_SERVICES": "speaches", "COMPUTE_TIER": "gpu", "GPU_PLACEMENT_ACTION": action}
    store = Store()
    world = World(action)
    world.store, world.services = store, Services(store)
    world.warm_ups = WarmUpsToldWhatToSay(*answers)
    world.seen = {"speaches": ON_CUDA}
    world.warmed = []

    def look_at(names, warmed):
        world.warmed.append(tuple(warmed))
        return {name: world.seen[name] for name in names}

    world.watch = PlacementWatch(
        load_settings(environ), store, world.services, look_at=look_at, warm_ups=world.warm_ups
    )
    return world


def look_at_speaches(world, state=STARTING):
    (seen,) = world.watch.look((ServiceSeen("speaches", Condition.RUNNING, healthy=True, detail="answers"),), state)
    return seen


@pytest.mark.parametrize("action", ["off", "warn"])
def test_it_is_healthy_only_after_its_first_request(action):
    world = warm_world(action, "its model is loading", "its model is loading")
    for _ in range(2):
        seen = look_at_speaches(world)
        assert (seen.healthy, seen.detail) == (False, "its model is loading")
        assert world.warmed == []
    assert look_at_speaches(world).healthy
    assert world.warmed == ([] if action == "off" else [("speaches",)])


def test_after_a_restart_it_is_asked_again():
    world = warm_world("restart")
    world.seen["speaches"] = ON_CPU
    look_at_speaches(world)
    look_at_speaches(world)
    first, second = world.warm_ups.turns
    assert first != second
    assert world.services.stopped == [{"speaches"}]


def test_in_audio_it_is_asked_nothing():
    world = warm_world("warn", "its model is loading")
    assert look_at_speaches(world, AUDIO).healthy
    assert world.warm_ups.turns == []
