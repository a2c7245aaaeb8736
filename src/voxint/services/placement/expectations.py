"""On which device each service should run: what the operator says, else what the tier means. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.services.placement.devices import Device
from voxint.services.placement.judge import Expectation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ON_CUDA = frozenset({Device.CUDA})
_ANY_GPU = frozenset({Device.GPU})
_MAY_BE_ON_CPU = frozenset({Device.GPU, Device.CPU})

BY_TIER: dict[str, dict[str, frozenset[Device]]] = {
    "gpu": {"whisper": _ON_CUDA, "pyannote": _ON_CUDA, "titanet": _ON_CUDA, "speaches": _ON_CUDA},
    # On ROCm only whisper is built for the GPU; the other two may rightly stay on the CPU.
    "rocm": {"whisper": _ANY_GPU, "pyannote": _MAY_BE_ON_CPU, "titanet": _MAY_BE_ON_CPU},
    "cpu": {},
    "metal": {},
    "simulated": {},
}
"""What each tier expects of each service. Of a service that does not stand here nothing is expected."""


def expectations(
    tier: str, services: Iterable[str], said: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, Expectation]:
    """The devices that each service may run on.

    Args:
        tier: COMPUTE_TIER.
        services: the names of the services.
        said: GPU_PLACEMENT_EXPECT, by service; what it says of a service stands in place of the tier's. `any` in it
            means that nothing is expected.
    """
    said = said or {}
    by_tier = BY_TIER.get(tier, {})
    return {
        name: _expectation(said[name]) if name in said else Expectation(by_tier.get(name, frozenset()))
        for name in services
    }


def _expectation(names: tuple[str, ...]) -> Expectation:
    if "any" in names:
        return Expectation()
    return Expectation(frozenset(Device(name) for name in names))
