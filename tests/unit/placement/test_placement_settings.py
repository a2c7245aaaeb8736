from __future__ import annotations

import pytest

from voxint.services.placement.devices import Device
from voxint.settings import PLACEMENT_DEVICES, SettingsError, load_settings


def test_by_default_a_wrong_device_is_a_warning():
    settings = load_settings({})
    assert settings.gpu_placement_action == "warn"
    assert settings.placement_expected == {}
    assert settings.gpu_placement_max_restarts == 1


def test_what_is_expected_by_service():
    settings = load_settings({"GPU_PLACEMENT_EXPECT": "whisper=cuda, pyannote = CUDA ,titanet=cuda|cpu"})
    assert settings.placement_expected == {"whisper": ("cuda",), "pyannote": ("cuda",), "titanet": ("cuda", "cpu")}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GPU_PLACEMENT_EXPECT", "whisper", "'whisper' is not of the form service=device|device"),
        ("GPU_PLACEMENT_EXPECT", "whisper=", "'' is no device"),
        ("GPU_PLACEMENT_EXPECT", "whisper=gpux", "'gpux' is no device (one of cuda, rocm, metal, gpu, cpu, any)"),
        ("GPU_PLACEMENT_EXPECT", "whisper=cuda,whisper=cpu", "names whisper twice"),
        ("GPU_PLACEMENT_EXPECT", "whsiper=cuda", "whsiper is not one of GPU_PHASE_SERVICES"),
        ("GPU_PLACEMENT_ACTION", "shout", "off"),
        ("GPU_PLACEMENT_MAX_RESTARTS", "-1", "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(name, value, says):
    with pytest.raises(SettingsError) as refused:
        load_settings({name: value})
    (line,) = refused.value.problems
    assert line.startswith(f"{name}: ")
    assert says in line


def test_every_device_of_the_settings_has_a_meaning():
    assert set(PLACEMENT_DEVICES) - {"any"} == {device.value for device in Device}
