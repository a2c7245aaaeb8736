"""What every control of the model services must do: one suite, on each way to run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from service_worlds import NAMES, TINY, DockerWorld, ProcessWorld, eventually

from voxint.gpu_phase.model import Condition
from voxint.services import process_table
from voxint.services.process import ProcessControl
from voxint.settings import ServiceSettings


@pytest.fixture(params=[ProcessWorld, DockerWorld], ids=["process", "docker"])
def world(request, tmp_path, monkeypatch):
    made = request.param(tmp_path, monkeypatch)
    yield made
    made.close()


def conditions(control):
    return {service.name: service.condition for service in control.inspect()}


def all_in(control, condition):
    return set(conditions(control).values()) == {condition}


def healthy(control):
    return {service.name for service in control.health() if service.healthy}


def up(world):
    control = world.control()
    assert control.start() == {}
    assert eventually(lambda: healthy(control) == set(NAMES)), control.health()
    return control


def test_nothing_runs_at_first_and_each_service_is_named_in_order(world):
    seen = world.control().inspect()
    assert [service.name for service in seen] == list(NAMES)
    assert {service.condition for service in seen} == {Condition.STOPPED}
    assert not any(service.healthy for service in world.control().health())


def test_start_brings_all_up_and_stop_takes_all_down(world):
    control = up(world)
    assert all_in(control, Condition.RUNNING)
    control.stop()
    assert eventually(lambda: all_in(control, Condition.STOPPED))
    control.stop()
    assert all_in(control, Condition.STOPPED)


def test_a_service_that_still_loads_runs_but_is_not_healthy(world):
    world.behave("pyannote", start_seconds=1.0)
    control = world.control()
    assert control.start() == {}
    assert eventually(lambda: {"whisper", "titanet"} <= healthy(control))
    loading = {service.name: service for service in control.health()}["pyannote"]
    assert loading.condition is Condition.RUNNING
    assert not loading.healthy
    assert loading.detail
    assert eventually(lambda: healthy(control) == set(NAMES))


def test_start_starts_nothing_twice(world):
    control = up(world)
    before = {name: world.identity(name) for name in NAMES}
    assert control.start() == {}
    assert world.control().start() == {}
    assert {name: world.identity(name) for name in NAMES} == before


def test_a_service_that_died_is_seen_and_started_again_alone(world):
    control = up(world)
    before = world.identity("whisper")
    world.die("titanet")
    assert eventually(lambda: conditions(control)["titanet"] is Condition.STOPPED)
    assert conditions(control)["whisper"] is Condition.RUNNING
    control.start()
    assert eventually(lambda: healthy(control) == set(NAMES))
    assert world.identity("whisper") == before


def test_another_worker_finds_what_the_first_one_started(world):
    up(world)
    second = world.control()
    assert all_in(second, Condition.RUNNING)
    assert healthy(second) == set(NAMES)
    second.stop()
    assert eventually(lambda: all_in(second, Condition.STOPPED))


def test_a_frozen_service_still_holds_the_gpu_and_can_be_stopped(world):
    control = up(world)
    world.freeze("whisper")
    assert conditions(control)["whisper"] is Condition.RUNNING

    def stopped():
        control.stop()
        return all_in(control, Condition.STOPPED)

    assert eventually(stopped)


def test_a_service_that_ignores_the_stop_is_killed_and_never_called_stopped_before(world):
    world.behave("pyannote", ignore_stop=True)
    control = up(world)
    calls = []

    def stopped():
        begun = time.monotonic()
        control.stop()
        calls.append(time.monotonic() - begun)
        left = bool(world.identity("pyannote"))
        condition = conditions(control)["pyannote"]
        assert condition is Condition.RUNNING or not left
        return condition is Condition.STOPPED

    assert eventually(stopped)
    assert max(calls) < 8.0
    assert all_in(control, Condition.STOPPED)


def test_slow_stops_go_on_at_the_same_time(world):
    """No stop ends here: if they came one after another, only the first service would have heard of it."""
    world.grace = 600
    for name in NAMES:
        world.behave(name, stop_seconds=600)
    control = up(world)

    def all_told():
        control.stop()
        return not healthy(control)

    assert eventually(all_told)
    assert all_in(control, Condition.RUNNING)


def test_a_start_that_fails_is_named_and_the_others_start(world):
    world.cannot_start("whisper")
    control = world.control()
    reasons = []

    def told():
        reasons.append(control.start())
        return reasons[-1].get("whisper")

    assert eventually(told)
    assert all(set(said) <= {"whisper"} for said in reasons)
    assert eventually(lambda: healthy(control) == {"pyannote", "titanet"})
    detail = {service.name: service.detail for service in control.health()}["whisper"]
    assert detail
    world.can_start("whisper")
    control = world.control()
    assert eventually(lambda: control.start() == {} and healthy(control) == set(NAMES))


def test_what_cannot_be_asked_is_unknown_and_nothing_raises(world):
    control = up(world)
    world.lose_engine()
    seen = control.inspect()
    assert {service.condition for service in seen} == {Condition.UNKNOWN}
    assert all(service.detail for service in seen)
    assert not any(service.healthy for service in control.health())
    assert set(control.start()) == set(NAMES)
    control.stop()
    world.find_engine()
    assert eventually(lambda: all_in(control, Condition.RUNNING) or all_in(control, Condition.STOPPED))
    control.stop()
    assert eventually(lambda: all_in(control, Condition.STOPPED))


# --- processes alone -------------------------------------------------------------------------------------------------


@pytest.fixture
def processes(tmp_path, monkeypatch):
    made = ProcessWorld(tmp_path, monkeypatch)
    yield made
    made.close()


def test_the_cards_reason_reaches_the_operator(processes):
    processes.cannot_start("whisper")
    control = processes.control()
    control.start()
    assert eventually(lambda: not processes.pids("whisper"))
    reason = "exited with code 70: the card is held by the language model"
    assert {seen.name: seen.detail for seen in control.inspect()}["whisper"] == reason
    assert control.start() == {"whisper": reason}
    assert reason in {seen.name: seen.detail for seen in control.health()}["whisper"]


def test_a_command_that_is_not_there_is_named(processes):
    settings = processes.settings()
    services = {
        "whisper": ServiceSettings("whisper", "http://127.0.0.1:1", "/healthz", ("no-such-program", "--port", "1")),
        "pyannote": ServiceSettings("pyannote", "http://127.0.0.1:1", "/healthz", ()),
        "titanet": ServiceSettings("titanet", "http://127.0.0.1:1", "/healthz", (str(TINY),)),
    }
    control = ProcessControl(settings.model_copy(update={"services": services}))
    assert control.start() == {
        "whisper": "could not be started: command not found: no-such-program",
        "pyannote": "there is no command for it: set PYANNOTE_COMMAND",
        "titanet": f"could not be started: {TINY} may not be executed",
    }
    assert all_in(control, Condition.STOPPED)


def test_a_state_folder_that_cannot_be_written_starts_nothing(processes):
    (processes.folder / "run").write_text("a file stands where the folder should be")
    control = processes.control()
    failures = control.start()
    assert set(failures) == set(NAMES)
    assert "cannot write its log" in failures["whisper"]


def test_the_services_do_not_get_voxints_secrets(processes):
    control = up(processes)
    assert "secrets seen: []" in control.log_of("whisper").read_text()


def test_a_child_that_outlives_its_service_still_counts(processes):
    processes.options["whisper"] = ["--child"]
    control = up(processes)
    assert len(processes.pids("whisper")) == 2
    leader = min(processes.pids("whisper"))
    os.kill(leader, signal.SIGKILL)
    assert eventually(lambda: len(processes.pids("whisper")) == 1)
    assert conditions(control)["whisper"] is Condition.RUNNING

    def stopped():
        control.stop()
        return all_in(control, Condition.STOPPED)

    assert eventually(stopped)


START_AND_DIE = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from voxint.services import process, process_record
from voxint.settings import ServiceSettings, Settings
if sys.argv[4] == "before":  # killed between the start and the note of it
    process.ProcessControl._keep = lambda self, record: os.kill(os.getpid(), 9)
service = ServiceSettings("whisper", f"http://127.0.0.1:{sys.argv[2]}", "/healthz",
                          (sys.executable, sys.argv[5], "--port", sys.argv[2]))
settings = Settings(service_control="process", service_state_dir=Path(sys.argv[1]), services={"whisper": service})
process.ProcessControl(settings).start()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_right_around_the_start_loses_no_service(processes, when):
    source = Path(process_table.__file__).parents[2]
    folder = processes.folder / "run"
    argv = [sys.executable, "-c", START_AND_DIE, str(folder), str(processes.ports["whisper"])]
    worker = subprocess.run([*argv, str(source), when, str(TINY)], check=False, timeout=30)
    assert worker.returncode == -signal.SIGKILL
    control = processes.control()
    assert eventually(lambda: conditions(control)["whisper"] is Condition.RUNNING)
    first = processes.identity("whisper")
    assert len(first) == 1
    control.start()
    assert processes.identity("whisper") == first

    def stopped():
        control.stop()
        return all_in(control, Condition.STOPPED)

    assert eventually(stopped)
    assert not psutil.pid_exists(first[0]) or psutil.Process(first[0]).status() == psutil.STATUS_ZOMBIE


def test_a_pid_that_belongs_to_another_program_now_is_left_alone(processes):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        folder = processes.folder / "run"
        folder.mkdir()
        record = f'{{"service": "whisper", "pid": {stranger.pid}, "started": 1000000000.0, "log_offset": 0}}'
        (folder / "whisper.json").write_text(record)
        control = processes.control()
        assert conditions(control)["whisper"] is Condition.STOPPED
        control.stop()
        assert stranger.poll() is None
    finally:
        stranger.communicate()


def test_a_process_without_its_mark_is_known_by_pid_and_start(processes):
    """A program may overwrite its own environment's memory: what is kept on disk still names it."""
    bare = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        folder = processes.folder / "run"
        folder.mkdir()
        started = psutil.Process(bare.pid).create_time()
        record = f'{{"service": "whisper", "pid": {bare.pid}, "started": {started}, "log_offset": 0}}'
        (folder / "whisper.json").write_text(record)
        control = processes.control()
        assert conditions(control)["whisper"] is Condition.RUNNING
        control.stop()
        assert bare.wait(timeout=60) == -signal.SIGTERM
    finally:
        bare.communicate()


def test_a_service_of_another_state_folder_is_not_ours(processes, tmp_path):
    up(processes)
    settings = processes.settings().model_copy(update={"service_state_dir": tmp_path / "elsewhere"})
    other = ProcessControl(settings)
    assert all_in(other, Condition.STOPPED)
    other.stop()
    assert all_in(processes.control(), Condition.RUNNING)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"service": "whisper", "pid": "seven"}', '{"service": 1}'])
def test_a_damaged_note_on_disk_hides_nothing(processes, text):
    up(processes)
    (processes.folder / "run" / "whisper.json").write_text(text)
    control = processes.control()
    assert conditions(control)["whisper"] is Condition.RUNNING
    control.stop()
    assert eventually(lambda: all_in(control, Condition.STOPPED))
