"""The GPU changing hands on a real engine: what people run, and what they see."""

from __future__ import annotations

import pytest
from docker_stack import FILES, MODELS

pytestmark = pytest.mark.timeout(1500)
TURN = ["draining_post", "acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing", "llm"]


def ended_as_not_our_turn(stack, name):
    """The container is not running, and the entrypoint said why. Before the first start it says nothing."""
    stack.wait(lambda: stack.container(name).status == "exited", 30, f"{name} ends")
    assert stack.container(name).attrs["State"]["ExitCode"] == 75
    said = stack.dc("logs", "--no-log-prefix", "--tail", "1", name).stdout
    assert said.startswith("not started: GPU sharing is on and this is not Voxint's turn")


@pytest.mark.quick
def test_up_loads_no_model_while_the_language_model_has_the_gpu(stack):
    audio = [event for event in stack.ledger() if event["side"] == "audio"]
    stack.up("--force-recreate", *MODELS)
    for name in MODELS:
        ended_as_not_our_turn(stack, name)
    stack.up()
    stack.engine.cli("start", stack.container("whisper").id)
    for name in MODELS:
        ended_as_not_our_turn(stack, name)
    stack.wait_ticks()
    assert [event for event in stack.ledger() if event["side"] == "audio"] == audio


@pytest.mark.quick
def test_recordings_go_through_and_the_gpu_goes_over_and_back_twice(stack, report):
    for turn in (1, 2):
        before = stack.last_event()
        stack.voxint("runs", "pause")  # each `add` is a docker exec: the first one could be done before the second
        recordings = [stack.add(), stack.add()]
        stack.voxint("runs", "resume")
        stack.wait_done(recordings)
        stack.settle()
        events = stack.events(before)
        assert [event["to"] for event in events] == TURN
        took = {event["from"]: round(event["seconds"], 1) for event in events[1:]}
        report.facts["turns"][str(turn)] = {"recordings": 2, "seconds": took}
    starts = [event["side"] for event in stack.ledger() if event["event"] == "start"]
    turns = [side for index, side in enumerate(starts) if index == 0 or starts[index - 1] != side]
    assert turns[-5:] == ["llm", "audio", "llm", "audio", "llm"]


@pytest.mark.quick
def test_what_people_see_after_the_turns(stack, report):
    stack.wait_done([stack.add()])
    stack.settle()
    status, doctor = stack.voxint("gpu-phase", "status"), stack.voxint("doctor", check=False)
    report.facts["shown"] = {
        "gpu-phase status": status.stdout,
        "gpu-phase history": "\n".join(stack.voxint("gpu-phase", "history").stdout.splitlines()[:12]),
        "runs list": stack.voxint("runs", "list").stdout,
        "doctor": doctor.stdout,
        "exit status of doctor": doctor.returncode,
    }
    assert doctor.returncode == 0, doctor.stdout
    assert "[off ] service whisper" in doctor.stdout
    assert "llm" in status.stdout


def test_release_on_the_way_there_turns_round_in_every_phase(stack):
    """In `draining_post`, `acquiring` and `starting_services` one after the other, with the same recordings waiting."""
    recordings = stack.reach("draining_post")
    # Without a hold, and with no dwell, the next switch would begin before anybody could look at llm.
    stack.voxint("gpu-phase", "hold", "--for", "2h")
    for phase in ("draining_post", "acquiring", "starting_services"):
        if phase != "draining_post":
            stack.hold(phase)
            stack.voxint("gpu-phase", "audio-now")
            stack.wait_phase(phase)
        before = stack.last_event()
        assert stack.voxint("gpu-phase", "release").stdout
        stack.wait_phase("llm")
        assert "audio" not in {event["to"] for event in stack.events(before)}, phase
        assert stack.running() == set()
    stack.as_usual()
    stack.voxint("gpu-phase", "hold", "--for", "1s")
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done(recordings)
    stack.settle()


def test_release_on_the_way_back_in_every_phase_loses_nothing(stack):
    """In `audio`, and again in each phase that follows it."""
    recordings = stack.reach("audio")
    stack.voxint("gpu-phase", "hold", "--for", "2h")
    assert stack.voxint("gpu-phase", "release").stdout
    stack.wait_phase("draining")
    stack.hold("stopping_services")  # before the release that forces the drain: what follows it comes at once
    assert stack.voxint("gpu-phase", "release").stdout
    stack.wait_phase("stopping_services")
    stack.broker(release="pending")
    assert stack.voxint("gpu-phase", "release").stdout
    stack.wait_phase("releasing")
    assert stack.voxint("gpu-phase", "release").stdout
    stack.broker()
    stack.wait_phase("llm")
    stack.behave()
    stack.voxint("gpu-phase", "hold", "--for", "1s")
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done(recordings)
    stack.settle()


def test_release_in_error_tries_again_and_brings_the_gpu_back(stack):
    """The broker cannot bring its side back: `error`. A release while it still cannot stays there, with its words."""
    stack.broker(release="failed")
    recording = stack.add()
    stack.wait_phase("error")
    said = stack.voxint("gpu-phase", "release")
    assert said.stdout
    before = stack.version()
    stack.wait(lambda: stack.version() >= before + 2, 60, "ticks go on")
    assert stack.phase() in {"error", "releasing"}
    assert "500" in stack.last_error()
    assert stack.running() == set()
    doctor = stack.voxint("doctor", check=False)
    assert doctor.returncode == 1
    assert "error" in doctor.stdout
    stack.broker()
    stack.voxint("gpu-phase", "release")
    stack.wait_phase("llm")
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])
    stack.settle()


def test_release_in_llm_holds_the_next_switch_off_and_audio_now_overrides(stack):
    stack.voxint("gpu-phase", "release")
    recording = stack.add()
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])


def test_turned_off_safely_the_same_images_start_freely(stack):
    """As the how-to page has it: hand back, stop the other service, leave the overlay out."""
    stack.voxint("gpu-phase", "release")
    stack.wait_phase("llm")
    stack.dc("stop", "broker")
    without = [name for name in FILES if "gpu-phase" not in name]
    off = {"GPU_PHASE_ENABLED": "false"}
    try:
        stack.up("--remove-orphans", "--scale", "broker=0", files=without, environ=off)
        assert stack.containers("gpu-phase") == []
        stack.wait(lambda: stack.running() == set(MODELS), 60, "the models run")

        def healthy():
            states = [one for found in stack.states(*MODELS).values() for one in found]
            return all(one["Health"]["Status"] == "healthy" for one in states)

        stack.wait(healthy, 120, "they are healthy")
        assert "off" in stack.voxint("gpu-phase", "status").stdout
    finally:
        stack.dc("stop", *MODELS)
        stack.up()
    stack.settle()
