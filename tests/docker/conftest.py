"""One engine, one set of images and one stack for all tests here; each test leaves the stack in `llm`, idle.

A machine where no engine can be had, or no image be built for want of a network, fails these tests and is told what is
missing. Only where DOCKER_TESTS=if-possible is set it is one line, and success.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from docker_report import Report
from docker_stack import MODELS, Stack, wrong_side
from real_engine import BUILD, CannotError, Engine, build_images, find_compose, run

REPORT = Report()


def pytest_configure(config):
    """A run that is told to end takes its engine with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    everything = config.args == ["tests/docker"] and config.getoption("markexpr") == "not images"
    REPORT.whole = everything and not config.getoption("keyword") and not config.getoption("lf")


def pytest_runtest_logreport(report):
    REPORT.note_test(report)
    if report.failed:  # a long run tells at once what it found
        BUILD.mkdir(parents=True, exist_ok=True)
        with (BUILD / "failures.log").open("a", encoding="utf-8") as log:
            log.write(f"=== {report.nodeid} {report.when}\n{report.longreprtext}\n")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus):
    REPORT.whole = REPORT.whole and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    if REPORT.facts["tests"]:
        REPORT.write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


FAILED = pytest.StashKey[bool]()


def could_not_run(error):
    allowed = os.environ.get("DOCKER_TESTS") == "if-possible"
    pytest.exit(f"test-docker: {'NOT RUN' if allowed else 'cannot run'}: {error}", returncode=0 if allowed else 1)


@pytest.fixture(scope="session")
def report():
    return REPORT


@pytest.fixture(scope="session")
def compose():
    try:
        return find_compose()
    except CannotError as error:
        could_not_run(error)


@pytest.fixture(scope="session")
def engine(compose, report):
    began = time.monotonic()
    try:
        made = Engine()
    except CannotError as error:
        could_not_run(error)
    up = time.monotonic()
    (BUILD / "failures.log").unlink(missing_ok=True)
    try:
        try:
            made.base = build_images(made, compose)
        except CannotError as error:
            could_not_run(error)
        version = run([*compose, "version", "--short"]).stdout.strip()
        took = {"engine": round(up - began, 1), "images": round(time.monotonic() - up, 1)}
        report.note_engine(made, version, took)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def whole(engine, compose, report):
    stack = Stack(engine, compose)
    stack.down()
    stack.watch()
    began = time.monotonic()
    stack.up()
    up = time.monotonic()
    stack.wait(lambda: stack.phase() == "llm", 120, "the first tick")
    report.facts["seconds_of"]["up -d, images there"] = round(up - began, 1)
    report.facts["seconds_of"]["first tick after up -d"] = round(time.monotonic() - up, 1)
    yield stack
    stack.close()


@pytest.fixture
def stack(whole, request):
    """The stack, idle and as it is shipped; afterwards nothing may have been on the card out of turn."""
    if not whole.as_shipped:
        whole.up("--remove-orphans")
    whole.as_usual()
    whole.settle()
    whole.deaths.clear()
    request.node.stash[FAILED] = False
    yield whole
    whole.as_shipped = whole.as_shipped and not request.node.stash[FAILED]
    whole.as_usual()
    assert wrong_side(whole.ledger()) == []
    collided = [service for service, code in whole.deaths if service in MODELS and code == 70]
    assert collided == [], f"{collided} met the language model on the card\n{whole.told()}"
