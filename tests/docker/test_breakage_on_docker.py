"""What breaks on a GPU host, done for real: containers killed, removed, doubled; engine, network and host going away."""

from __future__ import annotations

import pytest
from docker_stack import MODELS

pytestmark = pytest.mark.timeout(900)

KILLS = [
    # each service once at least, each phase twice at least
    ("gpu-phase", "starting_services"),
    ("gpu-phase", "stopping_services"),
    ("gpu-phase", "acquiring"),
    ("worker", "audio"),
    ("worker", "draining"),
    ("beat", "acquiring"),
    ("redis", "audio"),
    ("redis", "starting_services"),
    ("postgres", "audio"),
    ("postgres", "stopping_services"),
    ("api", "draining_post"),
    ("whisper", "audio"),
    ("pyannote", "draining"),
    ("titanet", "starting_services"),
    ("broker", "draining_post"),
]


@pytest.mark.parametrize(("victim", "phase"), KILLS, ids=["-in-".join(kill) for kill in KILLS])
def test_a_container_killed_in_any_phase_loses_no_recording(stack, victim, phase):
    recordings = stack.reach(phase)
    stack.container(victim).kill()
    if victim not in MODELS:  # a kill through the engine is taken for a person's wish: a restart policy does not act
        stack.container(victim).start()
    stack.wait(stack.status, 60, "the command line answers")
    stack.behave()
    stack.broker()
    stack.wait_done(recordings, seconds=200)
    stack.settle()


def test_up_and_recreate_in_the_middle_lose_nothing(stack):
    recordings = stack.reach("audio")
    stack.up()
    assert stack.phase() in {"audio", "draining"}
    stack.up("--force-recreate", "worker", "beat", "api", "gpu-phase")
    stack.wait_done(recordings, seconds=200)
    recordings = stack.reach("audio")
    stack.up("--force-recreate", *MODELS)
    stack.behave()
    stack.wait_done(recordings, seconds=200)
    stack.settle()


def test_the_engine_restarted_in_the_middle(stack):
    if not stack.engine.own:
        pytest.skip("this engine is not ours to restart")
    recordings = stack.reach("audio")
    stack.engine.restart()
    stack.watch()
    stack.wait(stack.status, 90, "the stack is back by its restart policies")
    stack.behave()
    stack.wait_done(recordings, seconds=200)
    stack.settle()


def test_everything_killed_and_brought_up_again(stack):
    """Power lost in audio: nothing says goodbye, and the models must not be the first to be back."""
    recordings = stack.reach("audio")
    ids = [
        one.id for one in stack.client.containers.list(filters={"label": f"com.docker.compose.project={stack.project}"})
    ]
    stack.engine.cli("kill", *ids)
    stack.up()
    stack.behave()
    stack.wait_done(recordings, seconds=200)
    stack.settle()


def test_started_in_the_wrong_order(stack):
    recording = stack.add()
    stack.dc("stop", "-t", "3")
    for service in ("gpu-phase", "worker", "beat", *MODELS, "broker", "redis", "postgres", "api"):
        stack.container(service).start()
    stack.wait(lambda: stack.status().get("task_running"), 120, "ticks arrive again")
    stack.wait_done([recording], seconds=200)
    stack.settle()


@pytest.mark.parametrize("phase", ["audio", "starting_services", "stopping_services"])
def test_the_network_to_the_broker_is_cut_for_a_while(stack, phase):
    recordings = stack.reach(phase)
    network = stack.client.networks.get(f"{stack.project}_default")
    broker = stack.container("broker")
    network.disconnect(broker)
    stack.wait(
        lambda: "broker" in str(stack.status()) or stack.phase() in {"llm", "error"} or stack.phase() == phase,
        30,
        "seen",
    )
    network.connect(broker, aliases=["broker"])
    stack.behave()
    stack.voxint("gpu-phase", "audio-now", check=False)
    stack.wait_done(recordings, seconds=200)
    stack.wait(lambda: stack.phase() == "llm", 200, "llm")
    stack.settle()


def test_a_service_that_ignores_the_stop_is_killed_by_the_engine_and_waited_for(stack):
    stack.behave(whisper={"ignore_term": True})
    recording = stack.add()
    stack.wait_phase("stopping_services", seconds=60)
    assert "whisper" in stack.running()
    stack.wait_done([recording])
    stack.settle()
    assert ("whisper", 137) in stack.deaths
    took = next(one["seconds"] for one in reversed(stack.history()) if one["from"] == "stopping_services")
    assert 14 < took < 25  # the container's own grace is 15 s


def test_a_twin_that_somebody_starts_is_stopped_with_a_note(stack):
    original = stack.container("whisper")
    labels = {name: value for name, value in original.labels.items() if name.startswith("com.docker.compose")}
    twin = stack.client.containers.create(
        "voxint-test-stub:1", entrypoint=["sleep", "300"], labels=labels, name="a-twin"
    )
    try:
        twin.start()
        stack.wait(lambda: "service_runs" in [event["cause"] for event in stack.history()[-4:]], 30, "it is noticed")
        stack.wait(lambda: twin.reload() or twin.status == "exited", 60, "it is stopped")
        stack.settle()
        note = next(one for one in reversed(stack.history()) if one["cause"] == "service_runs")
        assert "whisper" in (note["reason"] or "")
    finally:
        twin.remove(force=True)


def test_a_model_container_that_was_removed_is_a_clear_error_and_comes_back(stack):
    stack.container("titanet").remove(force=True)
    stack.dc("up", "-d", "--no-deps", "gpu-phase", environ={"GPU_PHASE_START_LIMIT_SECONDS": "8"})
    recording = stack.add()
    stack.wait(lambda: "no container of it" in str(stack.status().get("last_error")), 60, "the reason is told")
    stack.dc("up", "--no-start", "titanet")
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])
    stack.settle()


def test_a_socket_that_the_worker_may_not_use_is_a_reason_and_no_crash(stack):
    stack.dc("up", "-d", "--no-deps", "gpu-phase", environ={"DOCKER_GID": "54321"})
    try:
        recording = stack.add()
        words = "no permission for the Docker socket"
        stack.wait(lambda: words in stack.voxint("doctor", check=False).stdout, 60, "the reason is told")
        assert stack.phase() == "llm"
    finally:
        stack.up()
    stack.wait_done([recording])
