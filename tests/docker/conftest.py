"""One engine, one set of images and one stack for all tests here; each test leaves the stack in `llm`, idle."""

from __future__ import annotations

import pytest
from docker_stack import MODELS, CannotError, Engine, Stack, build_images, find_compose, wrong_side


@pytest.fixture(scope="session")
def compose():
    try:
        return find_compose()
    except CannotError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine(compose):
    try:
        made = Engine()
        build_images(made, compose)
    except CannotError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def whole(engine, compose):
    stack = Stack(engine, compose)
    stack.down()
    stack.watch()
    stack.up()
    stack.wait(lambda: stack.phase() == "llm", 90, "the first tick")
    yield stack
    stack.close()


@pytest.fixture
def stack(whole):
    """The stack, idle and as it is shipped; afterwards nothing may have been on the card out of turn."""
    whole.up("--remove-orphans")
    whole.behave()
    whole.broker()
    whole.settle()
    whole.deaths.clear()
    yield whole
    whole.behave()
    whole.broker()
    assert wrong_side(whole.ledger()) == []
    collided = [service for service, code in whole.deaths if service in MODELS and code == 70]
    assert collided == [], f"{collided} met the language model on the card\n{whole.told()}"
