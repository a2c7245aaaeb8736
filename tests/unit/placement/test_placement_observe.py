"""What can be seen of a service: its health answer read the right way round, and sources that fail tell nothing."""

from __future__ import annotations

import psutil
import pytest

from voxint.services.health import Answer, Health
from voxint.services.placement import observe as observing
from voxint.services.placement import pids
from voxint.services.placement.devices import Device
from voxint.services.placement.judge import Observation
from voxint.services.placement.memory import GpuRows
from voxint.services.placement.observe import Sources, observation_of, observe, sources
from voxint.settings import load_settings

SETTINGS = load_settings({"COMPUTE_TIER": "gpu"})
OURS = {"status": "ok", "model": "base", "device": "cuda:0"}


def answer(body, kind=Answer.READY):
    return Health(kind, "answers", body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (OURS, Observation(device="cuda:0", loaded=True)),
        ({"status": "ok"}, Observation(loaded=False)),
        (None, Observation(loaded=False)),
        ({"device": 3, "providers": "CUDAExecutionProvider"}, Observation(loaded=False)),
        (
            {"providers": ["CPUExecutionProvider", 3, "CUDAExecutionProvider"]},
            Observation(loaded=False, providers=("CPUExecutionProvider", "CUDAExecutionProvider")),
        ),
        (OURS | {"device_source": "requested"}, Observation(device="cuda:0", loaded=True, echoed=True)),
        (OURS | {"device_source": "loaded"}, Observation(device="cuda:0", loaded=True)),
        (OURS | {"device": "cuda\x1b[2J\n"}, Observation(device="cuda [2J", loaded=True)),
    ],
)
def test_what_a_health_answer_says(body, expected):
    assert observation_of(answer(body)) == expected


def test_a_service_that_is_not_ready_does_not_run_as_far_as_this_goes():
    assert not observation_of(answer(OURS, Answer.NOT_READY)).running
    assert not observation_of(Health(Answer.REFUSED, "connection refused")).running


def test_a_request_that_was_served_proves_a_loaded_model():
    assert observation_of(answer(None), warmed=True).loaded


@pytest.fixture
def answers(monkeypatch):
    monkeypatch.setattr(observing, "probe_all", lambda urls, _limit: dict.fromkeys(urls, answer(OURS)))


def test_memory_is_joined_by_the_pids_of_each_service(answers):
    rows = GpuRows({7: 3 << 30}, complete=True, kind=Device.CUDA)
    from_where = Sources(rows=lambda: rows, pids=lambda: {"whisper": {7}, "pyannote": {8}})
    seen = observe(SETTINGS, ["whisper", "pyannote", "titanet"], from_where)
    assert [seen[name].gpu_bytes for name in ("whisper", "pyannote", "titanet")] == [3 << 30, 0, None]


def broken(error):
    def call(*_):
        raise error

    return call


def test_a_driver_or_a_process_table_that_fails_tells_nothing(answers):
    fine = GpuRows({7: 3 << 30}, complete=True)
    for from_where in (
        Sources(rows=broken(RuntimeError("segfault in the driver")), pids=lambda: {"whisper": {7}}),
        Sources(rows=lambda: fine, pids=broken(OSError("no /proc"))),
        Sources(),
    ):
        assert observe(SETTINGS, ["whisper"], from_where)["whisper"].gpu_bytes is None


def test_a_process_table_that_psutil_cannot_read_is_an_error_of_the_system(monkeypatch):
    monkeypatch.setattr(pids, "living", broken(psutil.AccessDenied(pid=7)))
    look = pids.pids_of(load_settings({"SERVICE_CONTROL": "process"}))
    with pytest.raises(OSError, match="pid=7"):
        look()
    assert pids.pids_of(load_settings({"SERVICE_CONTROL": "docker"})) is None


@pytest.mark.parametrize(
    ("tier", "sees", "reads"),
    [("gpu", True, "read_nvml"), ("rocm", True, "read_amd"), ("gpu", False, None), ("cpu", True, None)],
)
def test_each_tier_reads_its_own_driver_and_none_from_inside_a_container(monkeypatch, tier, sees, reads):
    monkeypatch.setattr(observing, "sees_every_process", lambda: sees)
    found = sources(load_settings({"COMPUTE_TIER": tier}), dict)
    assert (found.rows.func.__name__ if found.rows else None) == reads


def test_without_pids_no_driver_is_asked(monkeypatch):
    monkeypatch.setattr(observing, "sees_every_process", lambda: True)
    assert sources(SETTINGS).rows is None


def test_what_was_printed_is_asked_of_those_that_run_alone(monkeypatch):
    monkeypatch.setattr(
        observing,
        "probe_all",
        lambda urls, _limit: {
            name: answer(OURS, Answer.READY if name == "whisper" else Answer.REFUSED) for name in urls
        },
    )
    asked = []
    observe(SETTINGS, ["whisper", "pyannote"], Sources(printed=asked.append))
    assert asked == ["whisper"]
