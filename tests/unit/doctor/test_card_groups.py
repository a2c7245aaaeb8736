"""Doctor's word on RENDER_GID and VIDEO_GID: beside a fault that they explain, and nowhere else."""

from __future__ import annotations

import pytest
from doctor_world import environment

from voxint.doctor.card_groups import card_groups
from voxint.settings import load_settings


def settings(tmp_path, **more):
    wanted = {"COMPUTE_TIER": "rocm", "SERVICE_CONTROL": "none", **more}
    return load_settings(environment(tmp_path, "postgresql://h/d", "redis://h/0", **wanted))


def test_on_rocm_the_service_that_needs_the_gpu_is_told_how_to_read_both_groups(tmp_path):
    hint = card_groups(settings(tmp_path), "whisper")
    assert "RENDER_GID is what `stat -c %g /dev/dri/renderD128`" in hint
    assert "VIDEO_GID what `stat -c %g /dev/kfd`" in hint


@pytest.mark.parametrize(
    ("service", "more"),
    [
        ("pyannote", {}),
        ("whisper", {"COMPUTE_TIER": "gpu"}),
        ("whisper", {"SERVICE_CONTROL": "process"}),
        ("whisper", {"GPU_PLACEMENT_EXPECT": "whisper=cpu"}),
    ],
    ids=["works on the cpu", "nvidia", "no container", "told to work on the cpu"],
)
def test_where_no_group_is_needed_none_is_named(tmp_path, service, more):
    assert card_groups(settings(tmp_path, **more), service) == ""
