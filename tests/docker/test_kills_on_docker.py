"""Containers killed while the GPU changes hands: two kills in each turn, and no recording may be lost by any.

`crash` ends the container's first process from outside, and its restart policy brings it back. `kill` is `docker kill`,
which the engine takes for a person's wish: it is started again by hand, but for a model, which is Voxint's to start.
"""

from __future__ import annotations

import time

import pytest
from docker_stack import MODELS

pytestmark = pytest.mark.timeout(1500)

TURNS = [
    # every service of the stack, and each phase at least twice; a model comes last: its death can end the turn
    [("api", "draining_post", "kill"), ("redis", "starting_services", "crash")],
    [("broker", "draining_post", "crash"), ("whisper", "audio", "kill")],
    [("beat", "acquiring", "crash"), ("redis", "audio", "kill")],
    [("gpu-phase", "acquiring", "crash"), ("postgres", "audio", "crash")],
    [("gpu-phase", "starting_services", "kill"), ("worker", "audio", "crash")],
    [("gpu-phase", "audio", "crash"), ("pyannote", "draining", "kill")],
    [("worker", "draining", "kill"), ("postgres", "stopping_services", "crash")],
    [("gpu-phase", "stopping_services", "crash"), ("broker", "releasing", "kill")],
    [("titanet", "starting_services", "kill"), ("gpu-phase", "releasing", "crash")],
]
IDS = [", ".join(f"{victim} in {phase}" for victim, phase, _ in turn) for turn in TURNS]
QUICK = IDS[4]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(turn, id=id_, marks=[pytest.mark.quick] if id_ == QUICK else [])
        for turn, id_ in zip(TURNS, IDS, strict=True)
    ],
)
def test_kills_in_one_turn_lose_no_recording(stack, report, kills):
    recordings, done = [], []
    for victim, phase, how in kills:
        recordings += stack.reach(phase)
        began = time.monotonic()
        kill = {"killed": victim, "in": phase, "how": how, "result": "the stack did not come back"}
        report.facts["kills"][f"{victim} in {phase}"] = kill
        done.append((kill, began))
        getattr(stack, how)(victim)
        stack.wait_ticks()
        kill |= {"ticks_again_seconds": round(time.monotonic() - began, 1), "result": "recordings not done"}
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()
    attempts = stack.sql(f"select max(attempts) from work_item where run_id in ({','.join(map(str, recordings))})")
    for kill, began in done:
        kill |= {
            "all_done_seconds": round(time.monotonic() - began, 1),
            "result": "done",
            "most_attempts": int(attempts),
        }


def test_the_list_of_kills_has_every_service_and_every_phase():
    killed = {(victim, phase) for turn in TURNS for victim, phase, _ in turn}
    assert {victim for victim, _ in killed} == {
        "api",
        "worker",
        "beat",
        "gpu-phase",
        "postgres",
        "redis",
        "broker",
        *MODELS,
    }
    phases = [phase for _, phase in killed]
    assert all(phases.count(phase) >= 2 for phase in phases), phases
