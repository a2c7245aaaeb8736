"""`make test-docker` where no engine can be had: told what to install, and a success only where DOCKER_TESTS=if-possible."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from real_engine import ROOT, CannotError, build, prove

NO_NETWORK = "E: Failed to fetch http://deb.example/p.deb  Temporary failure resolving 'deb.example'"


def quick_tests(folder, **more):
    """The quick tests on a machine whose commands are those of one folder."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/docker",
        "-p",
        "pytest_timeout",
        "-p",
        "no:cacheprovider",
        "-m",
        "quick",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DOCKER_"))}
    environ |= {"PATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    return subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=110, check=False)


def test_without_a_docker_command_the_run_fails_and_says_what_to_install(tmp_path):
    done = quick_tests(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "test-docker: cannot run: there is no docker command (Debian: apt-get install docker.io" in done.stdout


def test_where_it_is_run_if_possible_the_same_is_one_line_and_success(tmp_path):
    done = quick_tests(tmp_path, DOCKER_TESTS="if-possible")
    assert done.returncode == 0, done.stdout
    assert "test-docker: NOT RUN: there is no docker command" in done.stdout


class Nowhere:
    """An engine that nobody has started."""

    host = "unix:///nowhere/docker.sock"


@pytest.mark.parametrize(
    ("compose", "words"),
    [("false", "does not start containers"), ("true", "tells no end of a container|does not do what these tests need")],
    ids=["no containers", "containers, and nothing else"],
)
def test_an_engine_that_cannot_do_what_the_tests_need_is_the_machines_lack(compose, words):
    with pytest.raises(CannotError, match=words):
        prove(Nowhere, [compose], "an-image:1")


def test_packages_that_cannot_be_fetched_are_told_apart_from_a_mistake_in_a_dockerfile():
    with pytest.raises(
        CannotError, match="the app image cannot be built, as its packages cannot be fetched: E: Failed"
    ):
        build(["sh", "-c", f'echo "{NO_NETWORK}" >&2; exit 100'], "the app image")
    with pytest.raises(AssertionError, match="unknown instruction"):
        build(["sh", "-c", "echo 'unknown instruction: FORM' >&2; exit 1"], "the app image")
    build(["true"], "the app image")
