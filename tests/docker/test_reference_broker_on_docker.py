"""The reference broker as a service of the stack: it owns the language model, proves that the card is free, wants a token."""

from __future__ import annotations

import pytest
from docker_stack import FILES

pytestmark = pytest.mark.timeout(900)
WITH = (*FILES, "tests/docker/compose.reference-broker.yaml")
TOKEN = {"GPU_LEASE_TOKEN": "a token for tests alone"}


@pytest.fixture
def referenced(stack, monkeypatch):
    monkeypatch.setattr(stack, "environ", {**stack.environ, **TOKEN})
    stack.up(files=WITH)
    stack.settle(seconds=180)
    yield stack
    monkeypatch.undo()
    stack.up()
    stack.settle(seconds=180)


def test_two_turns_with_the_reference_broker(referenced):
    before = len(referenced.ledger())
    for _ in range(2):
        referenced.wait_done([referenced.add(), referenced.add()], seconds=200)
        referenced.settle(seconds=180)
    starts = [event["side"] for event in referenced.ledger()[before:] if event["event"] == "start"]
    turns = [side for index, side in enumerate(starts) if index == 0 or starts[index - 1] != side]
    assert turns == ["audio", "llm", "audio", "llm"]
    assert not [
        event for event in referenced.history() if event["cause"] in {"refused", "acquire_failed", "release_failed"}
    ][-1:]


def test_the_broker_killed_while_voxint_holds_the_gpu_goes_on_from_its_journal(referenced):
    recordings = referenced.reach("audio")
    broker = referenced.container("broker")
    broker.kill()
    broker.start()
    referenced.behave()
    referenced.wait_done(recordings, seconds=250)
    referenced.settle(seconds=180)


def test_a_wrong_token_is_told_and_starts_nothing(referenced, monkeypatch):
    referenced.dc("up", "-d", "--no-deps", "gpu-phase", files=WITH, environ={"GPU_LEASE_TOKEN": "another"})
    recording = referenced.add()
    referenced.voxint("gpu-phase", "audio-now")
    referenced.wait(lambda: "401" in referenced.voxint("doctor", check=False).stdout, 90, "the reason is told")
    assert referenced.running() == set()
    referenced.up(files=WITH)
    referenced.voxint("gpu-phase", "audio-now")
    referenced.wait_done([recording], seconds=250)
