"""The GPU changing hands on a real engine: what people run, and what they see."""

from __future__ import annotations

import json

import pytest
from docker_stack import FILES, MODELS

pytestmark = pytest.mark.timeout(900)
TURN = ["draining_post", "acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing", "llm"]


def since(stack, events_before):
    return [event["to"] for event in stack.history()[events_before:]]


def test_up_loads_no_model_while_the_language_model_has_the_gpu(stack):
    for name, (state,) in stack.states(*MODELS).items():
        assert state["Status"] == "exited", name
    audio = [event for event in stack.ledger() if event["side"] == "audio"]
    stack.up()
    stack.up("--force-recreate", *MODELS)
    stack.engine.cli("start", stack.container("whisper").id)
    for name in MODELS:
        stack.wait(lambda name=name: stack.container(name).status == "exited", 20, f"{name} ends")
        assert stack.container(name).attrs["State"]["ExitCode"] == 75
        said = stack.dc("logs", "--no-log-prefix", "--tail", "1", name).stdout
        assert said.startswith("not started: GPU sharing is on and this is not Voxint's turn")
    assert [event for event in stack.ledger() if event["side"] == "audio"] == audio


def test_recordings_go_through_and_the_gpu_goes_over_and_back_twice(stack, record_property):
    for turn in (1, 2):
        events = len(stack.history())
        stack.wait_done([stack.add(), stack.add()])
        stack.settle()
        assert since(stack, events) == TURN
        took = {event["from"]: round(event["seconds"], 2) for event in stack.history()[events + 1 :]}
        record_property(f"turn {turn}, seconds in each phase", json.dumps(took))
        print(f"turn {turn}: {took}")
    starts = [event["side"] for event in stack.ledger() if event["event"] == "start"]
    turns = [side for index, side in enumerate(starts) if index == 0 or starts[index - 1] != side]
    assert turns[-5:] == ["llm", "audio", "llm", "audio", "llm"]


def test_doctor_finds_the_stack_well(stack):
    done = stack.voxint("doctor", check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "[off ] service whisper" in done.stdout


PHASES = ["draining_post", "acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing"]


@pytest.mark.parametrize("phase", PHASES)
def test_release_in_every_phase_brings_the_gpu_back_and_loses_nothing(stack, phase):
    recordings = stack.reach(phase)
    said = stack.voxint("gpu-phase", "release")
    assert said.stdout
    if phase in {"acquiring", "releasing"}:
        stack.broker()
    if phase == "starting_services":
        stack.behave()
    stack.wait_phase("llm", seconds=90)
    stack.behave()
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done(recordings)
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
        stack.wait(lambda: stack.running() == set(MODELS), 30, "the models run")
        stack.wait(
            lambda: all(
                one["Health"]["Status"] == "healthy" for states in stack.states(*MODELS).values() for one in states
            ),
            60,
            "they are healthy",
        )
        done = stack.voxint("gpu-phase", "status")
        assert "off" in done.stdout
    finally:
        stack.dc("stop", *MODELS)
        stack.up()
    stack.settle()
