"""Containers as they are met in the wild: look-alikes, twins, odd states, an engine that fails. On the real SDK."""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import docker.errors
import pytest
import requests.exceptions
from docker_engine import SERVICE, FakeContainer
from service_worlds import NAMES, DockerWorld, eventually

from voxint.gpu_phase.model import Condition
from voxint.services import engine_words
from voxint.services.docker import DockerControl

STATES_STOPPED = ("created", "exited", "dead", "removing")
STATES_RUNNING = ("running", "paused", "restarting")


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = DockerWorld(tmp_path, monkeypatch)
    yield made
    made.close()


def seen(control, name="whisper"):
    return {service.name: service for service in control.inspect()}[name]


def ask_health(control, name="whisper"):
    return {service.name: service for service in control.health()}[name]


def healthy(control):
    return {service.name for service in control.health() if service.healthy}


def touched(world, container):
    return [verb for method, path in world.engine.calls if method == "POST" and container.id in path for verb in [path]]


def test_nothing_is_asked_before_the_first_call(world):
    world.control()
    assert world.engine.calls == []


def test_the_api_version_is_agreed_on_anew_each_time(world):
    control = world.control()
    control.inspect()
    control.inspect()
    assert world.engine.calls.count(("GET", "/version")) >= 2


# --- which containers are ours (61, 63) --------------------------------------------------------------------------------


def test_look_alikes_and_other_projects_are_left_alone(world):
    strangers = [
        world.add("whisper-old", "voxint-whisper-old-1"),
        world.add("whisper-exporter", "voxint-whisper-exporter-1"),
        world.add("whisper", "other-whisper-1", project="other"),
        world.add("whisper", "voxint2-whisper-1", project="voxint2"),
        world.engine.add(FakeContainer("voxint-whisper-9", {}, ["sleep", "30"], "/dev/null")),
    ]
    for stranger in strangers:
        stranger.argv = ["sleep", "30"]
        stranger.start()
    control = world.control()
    assert seen(control).condition is Condition.STOPPED
    control.start()
    assert eventually(lambda: healthy(control) == set(NAMES))
    control.stop()
    assert {service.condition for service in control.inspect()} == {Condition.STOPPED}
    assert [touched(world, stranger) for stranger in strangers] == [[]] * 5
    assert all(stranger.status() == "running" for stranger in strangers)


def test_a_container_that_somebody_else_started_is_seen_and_stopped(world):
    control = world.control()
    world.container("whisper").start()
    assert seen(control).condition is Condition.RUNNING
    control.stop()
    assert seen(control).condition is Condition.STOPPED


def test_a_recreated_and_renamed_container_is_found_by_its_labels(world):
    control = world.control()
    control.start()
    world.engine.remove(world.container("whisper"))
    assert seen(control).condition is Condition.STOPPED
    assert seen(control).detail == "has no container"
    world.add("whisper", "renamed-by-somebody")
    assert control.start() == {}
    assert eventually(lambda: "whisper" in healthy(control))
    assert "renamed-by-somebody" in seen(control).detail


def test_of_twins_the_newest_alone_is_started_and_all_are_stopped(world):
    old = world.container("whisper")
    new = world.add("whisper", "0a1b2c_voxint-whisper-1")
    control = world.control()
    control.start()
    assert eventually(lambda: "whisper" in healthy(control))
    assert (old.starts, new.starts) == (0, 1)
    old.argv = ["sleep", "30"]
    old.start()
    assert seen(control).condition is Condition.RUNNING
    control.stop()
    assert (old.status(), new.status()) == ("exited", "exited")


def test_one_twin_that_runs_keeps_the_service_running(world):
    twin = world.add("whisper", "voxint-whisper-1-left-over")
    twin.argv = ["sleep", "30"]
    twin.start()
    assert seen(world.control()).condition is Condition.RUNNING


def test_a_scaled_service_is_started_whole(world):
    first, second = world.container("whisper"), world.add("whisper", number="2")
    second.argv = ["sleep", "30"]
    world.control().start()
    assert (first.starts, second.starts) == (1, 1)


def test_a_one_off_run_is_stopped_but_never_started(world):
    run = world.add("whisper", "voxint-whisper-run-1", number="1", labels={"com.docker.compose.oneoff": "True"})
    control = world.control()
    control.start()
    assert run.starts == 0
    control.stop()
    run.argv = ["sleep", "30"]
    run.start()
    assert seen(control).condition is Condition.RUNNING
    control.stop()
    assert run.status() == "exited"


# --- health is not a yes or no (65) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "loads", "expected"),
    [
        ({"Status": "healthy"}, False, True),
        ({"Status": "starting"}, False, True),  # a real answer is newer than the engine's last check
        ({"Status": "starting"}, True, False),
        ({"Status": "unhealthy", "Log": [{"Output": "wget: server returned error"}]}, False, False),
        (None, False, True),
        ({"Status": "none"}, False, True),
        ({"Status": ""}, False, True),
        (None, True, False),
        ({"Status": "none"}, True, False),
        ({"Status": "healthy"}, True, False),
    ],
)
def test_only_a_service_that_really_answers_is_healthy(world, health, loads, expected):
    container = world.container("whisper")
    world.behave("whisper", start_seconds=60 if loads else 0)
    container.health = health
    control = world.control()
    control.start()
    assert eventually(
        lambda: (found := ask_health(control)).healthy or "answers" in found.detail or "own" in found.detail
    )
    found = ask_health(control)
    assert found.healthy is expected, found
    assert found.condition is Condition.RUNNING
    if health and health["Status"] == "unhealthy":
        assert found.detail == ("container voxint-whisper-1 is unhealthy by its own check: wget: server returned error")


def test_unhealthy_may_still_turn_healthy(world):
    container = world.container("whisper")
    container.health = {"Status": "unhealthy"}
    control = world.control()
    control.start()
    assert not ask_health(control).healthy
    container.health = {"Status": "healthy"}
    assert eventually(lambda: ask_health(control).healthy)


def test_a_container_that_ended_says_why(world):
    container = world.container("whisper")
    container.argv = [*container.argv, "--fail", "the card is held by the language model"]
    control = world.control()
    control.start()
    assert eventually(lambda: container.status() == "exited")
    found = ask_health(control)
    assert found.condition is Condition.STOPPED
    assert not found.healthy
    assert found.detail == ("container voxint-whisper-1 exited with code 70: the card is held by the language model")


# --- every state (66) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [*STATES_STOPPED, *STATES_RUNNING, "hibernating"])
def test_what_each_state_means_and_what_stop_does_with_it(world, state):
    container = world.container("whisper")
    container.argv = ["sleep", "30"]
    if state in STATES_RUNNING:
        container.start()
    if state == "paused":
        world.freeze("whisper")
    elif state != "running":
        container.forced = state
    control = world.control()
    expected = Condition.STOPPED if state in STATES_STOPPED else Condition.RUNNING
    expected = Condition.UNKNOWN if state == "hibernating" else expected
    assert seen(control).condition is expected
    assert state in seen(control).detail or state in {"created", "exited"}
    control.stop()
    assert container.stops == (1 if state in STATES_RUNNING else 0)


@pytest.mark.parametrize("state", ["dead", "removing"])
def test_a_dead_container_is_a_failure_with_a_hint_and_is_not_started(world, state):
    container = world.container("whisper")
    container.forced = state
    control = world.control()
    failures = control.start()
    assert set(failures) == {"whisper"}
    assert failures["whisper"] == (
        f"container voxint-whisper-1 is {state} and cannot be started: "
        "make it anew with `docker compose ... up --no-start --force-recreate whisper`"
    )
    assert touched(world, container) == []
    assert eventually(lambda: healthy(control) == {"pyannote", "titanet"})


def test_a_paused_container_is_brought_back(world):
    control = world.control()
    control.start()
    assert eventually(lambda: healthy(control) == set(NAMES))
    world.freeze("whisper")
    assert seen(control).condition is Condition.RUNNING
    assert control.start() == {}
    assert eventually(lambda: healthy(control) == set(NAMES))
    assert world.container("whisper").starts == 1


def test_an_absent_container_is_stopped_and_a_clear_start_error(world):
    world.engine.remove(world.container("whisper"))
    control = world.control()
    assert seen(control).condition is Condition.STOPPED
    assert control.start() == {
        "whisper": "there is no container of it in the compose project voxint: make it with "
        "`docker compose ... up --no-start whisper`, with the same -f files as the stack"
    }
    control.stop()


def test_a_container_removed_between_the_list_and_the_look_is_absent(world, monkeypatch):
    control = world.control()
    gone = FakeContainer("gone", world.container("whisper").labels, [], "/dev/null")
    listed = control._list
    world.engine.add(gone)

    def list_then_lose_it():
        items = listed()
        world.engine.containers.pop(gone.id, None)
        return items

    monkeypatch.setattr(control, "_list", list_then_lose_it)
    assert seen(control).condition is Condition.STOPPED
    assert "voxint-whisper-1" in seen(control).detail


def test_the_engines_own_words_for_a_start_that_failed(world):
    world.cannot_start("titanet")
    assert world.control().start() == {
        "titanet": "could not be started: the NVIDIA container toolkit is not set up on this host: "
        'could not select device driver "nvidia" with capabilities: [[gpu]]'
    }


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("nvidia-container-cli: device error: 5: unknown device: unknown", "GPU_DEVICE_IDS names a card that is not"),
        ("unresolvable CDI devices nvidia.com/gpu=5", "GPU_DEVICE_IDS names a card that is not there"),
        ("nvidia-container-cli: initialization error: driver rpc error", "the NVIDIA driver or its container toolkit"),
        ('error gathering device information while adding custom device "/dev/kfd": no such file', "no /dev/kfd"),
        ("driver failed programming external connectivity: port is already allocated", "could not be started: driver"),
    ],
)
def test_what_the_host_lacks_is_named_before_the_engines_words(world, words, hint):
    container = world.container("titanet")
    container.refuse_start = "OCI runtime create failed: " * 3 + words if "nvidia" in words else words
    said = world.control().start()["titanet"]
    assert hint in said[:150]
    assert len(said) <= 300


# --- stops that take their time ----------------------------------------------------------------------------------------


def test_a_stop_that_outlives_the_call_is_looked_at_again_and_not_sent_again(world):
    world.grace = 15
    world.behave("whisper", stop_seconds=4.0)
    world.control()
    control = DockerControl(world.settings(), {"DOCKER_HOST": world.host}, look_seconds=8, change_seconds=0.3)
    control.start()
    assert eventually(lambda: healthy(control) == set(NAMES))
    calls = []
    while seen(control).condition is not Condition.STOPPED:
        begun = time.monotonic()
        control.stop()
        calls.append(time.monotonic() - begun)
        assert len(calls) < 60
    assert len(calls) > 1
    assert min(calls) < 2.0
    assert world.container("whisper").stops == 1


def test_all_are_asked_at_the_same_time(world):
    control = world.control()
    world.engine.together = threading.Barrier(len(NAMES), timeout=60)
    assert {service.condition for service in control.inspect()} == {Condition.STOPPED}


# --- an engine that fails (68) -----------------------------------------------------------------------------------------


def check_unknown(control, words):
    for service in control.inspect():
        assert service.condition is Condition.UNKNOWN
        assert words in service.detail, service.detail
    assert healthy(control) == set()
    failures = control.start()
    assert set(failures) == set(NAMES)
    assert words in failures["whisper"]
    control.stop()
    assert words in (control.unreachable() or "")
    assert control.other_gpu_containers() == ()


def test_no_socket(world, tmp_path):
    world.host = f"unix://{tmp_path}/none.sock"
    check_unknown(world.control(), f"no Docker socket at {tmp_path}/none.sock: is it mounted")


def test_a_daemon_that_is_down_and_comes_back(world):
    control = world.control()
    control.start()
    world.engine.down()
    check_unknown(control, "refused the connection: is it running?")
    world.engine.serve()
    assert control.unreachable() is None
    assert seen(control).condition is Condition.RUNNING
    control.stop()
    assert {service.condition for service in control.inspect()} == {Condition.STOPPED}


def test_a_socket_that_is_not_ours_to_use(world, monkeypatch):
    Path(world.engine.path).chmod(0)
    if os.geteuid() == 0:  # root may do all: the kernel's answer to everybody else is given in its place
        refusal = PermissionError(13, "Permission denied", world.engine.path)
        monkeypatch.setattr("voxint.services.docker._try_socket", Mock(side_effect=refusal))
    check_unknown(world.control(), "set DOCKER_GID to its group")


def test_an_engine_that_hangs_is_given_up(world):
    world.engine.delay = 1.5
    control = DockerControl(world.settings(), {"DOCKER_HOST": world.host}, look_seconds=0.4, change_seconds=0.4)
    begun = time.monotonic()
    check_unknown(control, "did not answer in time")
    assert time.monotonic() - begun < 15.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b'{"message": "layer store is corrupt"}'), "layer store is corrupt"),
        ((403, b'{"message": "the socket proxy allows no GET /version"}'), "the socket proxy allows no GET"),
        ((200, b"<html>hello</html>"), "no usable answer"),
        ((200, b"[]"), "no usable answer"),
        ((200, b""), "no usable answer"),
    ],
)
def test_an_engine_that_answers_nonsense(world, answer, words):
    world.engine.answer = answer
    check_unknown(world.control(), words)


def test_a_host_name_that_does_not_resolve(world):
    control = DockerControl(world.settings(), {"DOCKER_HOST": "tcp://no-such-host.invalid:2375"})
    assert "does not resolve" in (control.unreachable() or "")


def test_a_host_that_makes_no_sense_is_a_reason_too(world):
    control = DockerControl(world.settings(), {"DOCKER_HOST": "carrier-pigeon://roof"})
    assert {service.condition for service in control.inspect()} == {Condition.UNKNOWN}


def test_one_container_that_cannot_be_inspected_leaves_the_others_known(world, monkeypatch):
    control = world.control()
    bad = world.container("whisper").id
    document = control._document

    def broken(id_):
        return {"State": "?"} if id_ == bad else document(id_)

    monkeypatch.setattr(control, "_document", broken)
    assert seen(control, "whisper").condition is Condition.UNKNOWN
    assert seen(control, "titanet").condition is Condition.STOPPED
    assert "whisper" in control.start()


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize(
    "kind",
    sorted({*subclasses(docker.errors.DockerException), *subclasses(requests.exceptions.RequestException)}, key=str),
    ids=lambda kind: kind.__name__,
)
def test_every_error_of_the_libraries_has_words(kind):
    wanted = [
        parameter
        for parameter in inspect.signature(kind.__init__).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if issubclass(kind, json.JSONDecodeError):
        error = kind("something went wrong", "{", 0)
    else:
        error = kind(*["something went wrong"] * max(1, len(wanted) - 1))
    words = engine_words.no_answer(error, "unix:///run/x.sock")
    assert "/run/x.sock" in words


# --- the turn file -----------------------------------------------------------------------------------------------------


def test_leave_is_given_before_a_start_and_taken_before_a_stop(world):
    control = world.control()
    control.start()
    leave = json.loads(world.turn.read_text())
    assert leave["leave"] is True
    assert leave["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    world.engine.down()
    control.stop()
    assert json.loads(world.turn.read_text())["leave"] is False


def test_without_a_turn_file_that_can_be_written_nothing_is_started(world):
    world.turn.parent.write_text("a file stands where the folder should be")
    failures = world.control().start()
    assert set(failures) == set(NAMES)
    assert "cannot write the turn file" in failures["whisper"]
    assert world.container("whisper").starts == 0


# --- for doctor and the console ----------------------------------------------------------------------------------------


def test_running_containers_that_reserve_a_gpu_are_told_when_sharing_does_not_know_them(world):
    gpu = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}]}
    rocm = {"Devices": [{"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd"}]}
    world.container("whisper").host_config = gpu
    for name, host_config, runs in [
        ("synthdetect", gpu, True),
        ("tts", rocm, True),
        ("idle", gpu, False),
        ("plain", {}, True),
        ("whisper", gpu, True),
    ]:
        project = "other" if name == "whisper" else "voxint"
        container = world.add(name, host_config=host_config, project=project)
        container.argv = ["sleep", "30"]
        if runs:
            container.start()
    assert world.control().other_gpu_containers() == ("voxint-synthdetect-1", "voxint-tts-1")


def test_one_service_alone_can_be_started_and_stopped(world):
    control = world.control()
    assert control.start(only={"whisper"}) == {}
    assert eventually(lambda: healthy(control) == {"whisper"})
    control.start()
    control.stop(only={"whisper"})
    assert [service.condition for service in control.inspect()] == [
        Condition.STOPPED,
        Condition.RUNNING,
        Condition.RUNNING,
    ]


def test_calls_from_several_threads_do_not_meet(world):
    control = world.control()
    threads = [threading.Thread(target=call) for call in [control.start, control.inspect, control.health] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert {
        container.labels[SERVICE]: container.starts for container in world.engine.containers.values()
    } == dict.fromkeys(NAMES, 1)
