"""Kinds of device, and the many names that libraries have for them. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Device(StrEnum):
    """What a model can run on. `gpu` is a GPU of any make, for evidence that does not name it."""

    CUDA = "cuda"
    ROCM = "rocm"
    METAL = "metal"
    GPU = "gpu"
    CPU = "cpu"


_NAMES = {
    "cuda": Device.CUDA,
    "nvidia": Device.CUDA,
    "rocm": Device.ROCM,
    "hip": Device.ROCM,
    "mps": Device.METAL,
    "metal": Device.METAL,
    "gpu": Device.GPU,
    "cpu": Device.CPU,
}
_PROVIDERS = {
    "tensorrtexecutionprovider": Device.CUDA,
    "nvtensorrtrtxexecutionprovider": Device.CUDA,
    "cudaexecutionprovider": Device.CUDA,
    "rocmexecutionprovider": Device.ROCM,
    "migraphxexecutionprovider": Device.ROCM,
    "coremlexecutionprovider": Device.METAL,
    "cpuexecutionprovider": Device.CPU,
}


def device_named(name: str) -> Device | None:
    """The device behind a library's name: `cuda:0`, `hip`, `CUDAExecutionProvider`.

    None for a name that leaves it open, such as `auto`, and for one that is not known: neither tells anything.
    """
    word = name.strip().lower()
    return _PROVIDERS.get(word) or _NAMES.get(word.split(":", 1)[0])


def device_of_providers(providers: Sequence[str]) -> Device | None:
    """The device of an onnxruntime session, from its providers in their order.

    The list is one of priorities: the first that supports a node gets it, and the CPU supports every one. So the first
    provider tells, and that another one stands in the list tells nothing.
    """
    return device_named(providers[0]) if providers else None


_ALSO: dict[Device, frozenset[Device]] = {
    Device.GPU: frozenset({Device.CUDA, Device.ROCM, Device.METAL}),
    Device.ROCM: frozenset({Device.CUDA}),  # PyTorch calls a ROCm GPU `cuda`
}


def fits(seen: Device, expected: Iterable[Device]) -> bool:
    """Whether a device that was seen is one of those expected. `gpu`, on either side, stands for every GPU."""
    wanted = frozenset(expected)
    if seen is Device.GPU:
        return bool(wanted - {Device.CPU})
    return seen in wanted or any(seen in _ALSO.get(one, frozenset()) for one in wanted)
