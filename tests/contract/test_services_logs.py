"""What the services printed, as each control gives it: one suite, on each way to run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kokoro_log import read_line
from service_worlds import DockerWorld, ProcessWorld

from voxint.services.placement.devices import Device
from voxint.services.placement.judge import Expectation, Observation, Verdict, judge
from voxint.services.placement.service_log import NoLogError, log_lines, printed_by
from voxint.settings import Settings

OPENS = "INFO:     Started server process [1]"


@pytest.fixture(params=[ProcessWorld, DockerWorld], ids=["process", "docker"])
def world(request, tmp_path, monkeypatch):
    made = request.param(tmp_path, monkeypatch)
    yield made
    made.close()


def prints(world, name, *lines):
    path = Path(world.container(name).log) if isinstance(world, DockerWorld) else world.control().log_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def without_times(lines):
    return [line.removeprefix("2026-09-25T12:00:00.123456789Z ") for line in lines]


def test_the_newest_lines_oldest_first(world):
    prints(world, "whisper", "one", "two", "three")
    assert without_times(log_lines(world.control(), "whisper", 2)) == ["two", "three"]
    assert without_times(log_lines(world.control(), "whisper", 100)) == ["one", "two", "three"]


def test_a_container_s_lines_carry_the_engine_s_times(tmp_path, monkeypatch):
    world = DockerWorld(tmp_path, monkeypatch)
    try:
        prints(world, "whisper", "one")
        assert log_lines(world.control(), "whisper", 5) == ["2026-09-25T12:00:00.123456789Z one"]
        world.lose_engine()
        assert log_lines(world.control(), "whisper", 5) == []
    finally:
        world.close()


def test_no_file_is_an_error_with_its_name(tmp_path, monkeypatch):
    world = ProcessWorld(tmp_path, monkeypatch)
    try:
        with pytest.raises(NoLogError, match=r"whisper\.log"):
            log_lines(world.control(), "whisper", 5)
    finally:
        world.close()


def test_whoever_keeps_no_logs_says_so():
    with pytest.raises(NoLogError, match="cannot be read from here"):
        log_lines(object(), "whisper", 5)


def test_what_a_service_that_reads_aloud_printed_is_evidence(world):
    services = {
        name: type(one)(name, one.url, one.health_path, one.command, "speech" if name == "whisper" else "none")
        for name, one in world.settings().services.items()
    }
    settings = Settings(services=services)
    look = printed_by(world.control(), settings, lambda _name: 1000.0)
    prints(world, "pyannote", OPENS, read_line(5000, 60))
    assert look("pyannote") is None
    expected = Expectation(frozenset({Device.CUDA}))

    def verdict(*lines):
        prints(world, "whisper", *lines)
        return judge("whisper", expected, Observation(printed=look("whisper"))).verdict

    assert verdict(OPENS, read_line(5000, 60)) is Verdict.SLOW
    assert verdict(OPENS, read_line(5000, 5)) is Verdict.OK
    assert verdict(OPENS, read_line(500, 6)) is Verdict.UNKNOWN
    assert verdict(OPENS, "EP Error CUDA failure 2 when using ['CUDAExecutionProvider']") is Verdict.WRONG
    assert verdict(OPENS, "EP Error CUDA failure 2", OPENS) is Verdict.UNKNOWN, "that was the process before"
