"""What breaks on a GPU host, done for real: containers recreated, removed, doubled; engine, network and host going away."""

from __future__ import annotations

import pytest
from docker.errors import APIError
from docker.types import DeviceRequest
from docker_stack import MODELS

from voxint.services.engine_words import start_refused

pytestmark = pytest.mark.timeout(1500)
CUT = "select coalesce(last_error, note) from gpu_phase where coalesce(last_error, note) like '%broker%'"


def test_up_and_recreate_in_the_middle_lose_nothing(stack):
    recordings = stack.reach("audio")
    stack.up()
    assert stack.phase() in {"audio", "draining"}
    stack.up("--force-recreate", "worker", "beat", "api", "gpu-phase")
    stack.as_usual()
    stack.wait_done(recordings)
    recordings = stack.reach("audio")
    stack.up("--force-recreate", *MODELS)
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()


def test_the_engine_restarted_in_the_middle(stack):
    if not stack.engine.own:
        pytest.skip("this engine is not ours to restart")
    recordings = stack.reach("audio")
    stack.engine.restart()
    stack.watch()
    stack.wait(stack.status, 120, "the stack is back by its restart policies")
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()


def test_everything_killed_and_brought_up_again(stack):
    """Power lost in audio: nothing says goodbye, and the models must not be the first to be back."""
    recordings = stack.reach("audio")
    ids = [
        one.id for one in stack.client.containers.list(filters={"label": f"com.docker.compose.project={stack.project}"})
    ]
    stack.engine.cli("kill", *ids)
    stack.up()
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()


def test_started_in_the_wrong_order(stack):
    recording = stack.add()
    stack.dc("stop", "-t", "3")
    for service in ("gpu-phase", "worker", "beat", *MODELS, "broker", "redis", "postgres", "api"):
        stack.container(service).start()
    stack.wait_ticks()
    stack.wait_done([recording])
    stack.settle()


@pytest.mark.parametrize("phase", ["acquiring", "audio", "stopping_services"])
def test_the_network_to_the_broker_is_cut_for_a_while(stack, phase):
    """The lease is not lost by it, nothing is started without the broker, and work goes on when it is back."""
    recordings = stack.reach(phase)
    network = stack.client.networks.get(f"{stack.project}_default")
    broker = stack.container("broker")
    network.disconnect(broker)
    said = stack.wait(lambda: stack.sql(CUT), 120, "the row tells that the broker cannot be reached")
    assert "broker" in said
    network.connect(broker, aliases=["broker"])
    stack.as_usual()
    stack.voxint("gpu-phase", "audio-now", check=False)
    stack.wait_done(recordings)
    stack.wait_phase("llm", seconds=240)
    stack.settle()


def test_a_service_that_ignores_the_stop_is_killed_by_the_engine_and_waited_for(stack):
    stack.behave(whisper={"ignore_term": True})
    recording = stack.add()
    stack.wait_phase("stopping_services")
    assert "whisper" in stack.running()
    stack.wait_done([recording])
    stack.settle()
    assert ("whisper", 137) in stack.deaths
    took = next(one["seconds"] for one in reversed(stack.events()) if one["from"] == "stopping_services")
    assert took > 14  # the container's own grace is 15 s


def service_runs(stack, after):
    return [event for event in stack.events(after) if event["cause"] == "service_runs"]


def test_a_twin_that_somebody_starts_is_stopped_with_a_note(stack):
    before = stack.last_event()
    original = stack.container("whisper")
    labels = {name: value for name, value in original.labels.items() if name.startswith("com.docker.compose")}
    twin = stack.client.containers.create(
        "voxint-test-stub:1", entrypoint=["sleep", "300"], labels=labels, name="a-twin"
    )
    try:
        twin.start()
        noticed = stack.wait(lambda: service_runs(stack, before), 60, "it is noticed")
        stack.wait(lambda: twin.reload() or twin.status == "exited", 60, "it is stopped")
        stack.settle()
        assert "whisper" in noticed[0]["reason"]
    finally:
        twin.remove(force=True)


def test_a_model_container_that_was_removed_is_a_clear_error_and_comes_back(stack):
    stack.container("titanet").remove(force=True)
    stack.dc("up", "-d", "--no-deps", "gpu-phase", environ={"GPU_PHASE_START_LIMIT_SECONDS": "8"})
    recording = stack.add()
    stack.wait(lambda: "no container of it" in stack.last_error(), 120, "the reason is told")
    stack.dc("up", "--no-start", "titanet")
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])
    stack.settle()


def test_a_socket_that_the_worker_may_not_use_is_a_reason_and_no_crash(stack):
    stack.dc("up", "-d", "--no-deps", "gpu-phase", environ={"DOCKER_GID": "54321"})
    try:
        recording = stack.add()
        words = "no permission for the Docker socket"
        stack.wait(lambda: words in stack.voxint("doctor", check=False).stdout, 120, "the reason is told")
        assert stack.phase() == "llm"
    finally:
        stack.up()
    stack.wait_done([recording])


@pytest.mark.parametrize(
    ("wants", "hint"),
    [
        ({"devices": ["/dev/kfd:/dev/kfd:rwm"]}, "this host has no /dev/kfd"),
        (
            {"device_requests": [DeviceRequest(driver="nvidia", count=1, capabilities=[["gpu"]])]},
            "NVIDIA container toolkit",
        ),
    ],
    ids=["amd", "nvidia"],
)
def test_a_gpu_that_the_host_does_not_have_is_named(engine, wants, hint):
    """On a host without one: what the engine really says is what the hints wait for."""
    client = engine.client()
    container = None
    try:
        container = client.containers.create("voxint-test-stub:1", **wants)
        with pytest.raises(APIError) as refused:
            container.start()
        assert hint in start_refused(refused.value)
    finally:
        if container is not None:
            container.remove(force=True)
        client.close()
