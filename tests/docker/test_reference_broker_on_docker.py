"""The reference broker as a service of the stack: it owns the language model, proves that the card is free, wants a token."""

from __future__ import annotations

import pytest
from docker_stack import FILES
from real_engine import build_stubs

pytestmark = pytest.mark.timeout(1500)
WITH = (*FILES, "tests/docker/compose.reference-broker.yaml")
TOKEN = {"GPU_LEASE_TOKEN": "a token for tests alone"}


@pytest.fixture(scope="module", autouse=True)
def referenced(whole, engine):
    """The one stack with the reference broker, for the tests of this file."""
    build_stubs(engine, engine.base, ["reference-broker"])
    usual = whole.files, whole.environ
    whole.files, whole.environ = WITH, {**whole.environ, **TOKEN}
    whole.up()
    yield
    whole.files, whole.environ = usual
    whole.up()


def test_two_turns_with_the_reference_broker(stack):
    before, events = len(stack.ledger()), stack.last_event()
    for _ in range(2):
        stack.wait_done([stack.add(), stack.add()])
        stack.settle()
    starts = [event["side"] for event in stack.ledger()[before:] if event["event"] == "start"]
    turns = [side for index, side in enumerate(starts) if index == 0 or starts[index - 1] != side]
    assert turns == ["audio", "llm", "audio", "llm"]
    trouble = {"refused", "acquire_failed", "release_failed"}
    assert not [event for event in stack.events(events) if event["cause"] in trouble]


def test_the_broker_killed_while_voxint_holds_the_gpu_goes_on_from_its_journal(stack):
    recordings = stack.reach("audio")
    broker = stack.container("broker")
    broker.kill()
    broker.start()
    stack.as_usual()
    stack.wait_done(recordings)
    stack.settle()


def test_a_wrong_token_is_told_and_starts_nothing(stack):
    stack.dc("up", "-d", "--no-deps", "gpu-phase", environ={"GPU_LEASE_TOKEN": "another"})
    recording = stack.add()
    stack.voxint("gpu-phase", "audio-now")
    stack.wait(lambda: "401" in stack.voxint("doctor", check=False).stdout, 120, "the reason is told")
    assert stack.running() == set()
    stack.up()
    stack.voxint("gpu-phase", "audio-now")
    stack.wait_done([recording])
