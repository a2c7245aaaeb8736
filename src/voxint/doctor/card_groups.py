"""What a container on an AMD GPU may lack: the groups of the card's devices. Nothing says so but that it stays off the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.services.placement.expectations import expectations

if TYPE_CHECKING:
    from voxint.settings import Settings

GROUPS = (
    ". On ROCm its container needs the groups of the card's devices, from .env: RENDER_GID is what"
    " `stat -c %g /dev/dri/renderD128` prints on the host, VIDEO_GID what `stat -c %g /dev/kfd` does"
)


def card_groups(settings: Settings, service: str) -> str:
    """The hint to add to a fault of that service; empty where it needs no AMD GPU, or runs in no container of ours."""
    if settings.compute_tier != "rocm" or settings.service_control == "process":
        return ""
    said = settings.placement_expected
    return GROUPS if expectations(settings.compute_tier, [service], said)[service].wants_gpu else ""
