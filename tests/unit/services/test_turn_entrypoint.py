"""The turn file, from the worker that writes it to the entrypoint that reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from voxint.services import turn_file
from voxint.settings import TRUE, load_settings
from voxint_models import turn

SOURCE = Path(turn.__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "turn" / "turn.json"


def ask(path, **environ):
    return turn.why_not({"GPU_TURN_FILE": str(path), "GPU_PHASE_ENABLED": "true"} | environ)


def test_a_fresh_leave_lets_start(path):
    turn_file.give_leave(path)
    assert ask(path) is None


def test_without_a_file_nothing_starts(path):
    assert ask(path) == "the gpu-phase worker has not written the turn file yet"


def test_a_leave_that_was_taken_says_who_has_the_gpu(path):
    turn_file.give_leave(path)
    turn_file.take_leave(path)
    assert "language model" in (ask(path) or "")


@pytest.mark.parametrize(("age", "starts"), [(0, True), (119, True), (122, False), (-119, True), (-122, False)])
def test_a_leave_ends_by_its_age_whichever_way_the_clock_was_set(path, age, starts):
    turn_file.give_leave(path)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    assert (ask(path) is None) is starts


def test_a_leave_of_another_boot_is_none(path):
    turn_file.give_leave(path)
    document = json.loads(path.read_text()) | {"boot_id": "another"}
    path.write_text(json.dumps(document))
    assert ask(path) == "the leave to start is from before the last reboot"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"leave": "yes"}', '{"leave": 1}'])
def test_a_damaged_file_gives_no_leave(path, text):
    path.parent.mkdir()
    path.write_text(text)
    assert ask(path) is not None


@pytest.mark.parametrize(
    "environ",
    [{"GPU_PHASE_ENABLED": "false"}, {"GPU_PHASE_ENABLED": ""}, {"GPU_TURN_FILE": ""}],
)
def test_with_sharing_off_the_same_image_starts_freely(path, environ):
    assert ask(path, **environ) is None


@pytest.mark.parametrize("word", ["true", "t", "1", "yes", "y", "on", "false", "f", "0", "no", "n", "off"])
@pytest.mark.parametrize("written", [str.lower, str.upper, str.title])
def test_sharing_is_on_here_where_it_is_on_for_the_worker(path, word, written):
    urls = {f"GPU_LEASE_{name}_URL": "http://broker:9100/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")}
    environ = {"GPU_PHASE_ENABLED": written(word)}
    worker = load_settings({"COMPUTE_TIER": "gpu", **urls, **environ})
    assert (ask(path, **environ) is not None) is worker.gpu_phase_enabled
    assert (word in TRUE) is worker.gpu_phase_enabled


def run(environ, *command):
    return subprocess.run(
        [sys.executable, "-m", "voxint_models.turn", *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_entrypoint_becomes_the_command_or_ends_with_75(path):
    sharing = {"GPU_TURN_FILE": str(path), "GPU_PHASE_ENABLED": "true"}
    print_pid = (sys.executable, "-c", "print('runs')")
    refused = run(sharing, *print_pid)
    assert (refused.returncode, refused.stdout) == (75, "")
    assert refused.stderr.count("\n") == 1
    assert "the gpu-phase worker has not written the turn file yet" in refused.stderr
    turn_file.give_leave(path)
    assert run(sharing, *print_pid).stdout == "runs\n"
    assert run({}, *print_pid).stdout == "runs\n"
    assert run({}, "no-such-command").returncode == 127
    assert run({}).returncode == 2
