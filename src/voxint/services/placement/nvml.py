"""Which processes hold memory of NVIDIA GPUs, through NVML's own library. Never raises, and never parses a program's text."""

from __future__ import annotations

from typing import Any

from voxint.gpu_phase.reasons import clean
from voxint.services.placement.devices import Device
from voxint.services.placement.memory import HIDDEN, UNSEEN_BYTES, GpuRows


def read_nvml(*, host_numbers: bool) -> GpuRows:
    """The rows of all GPUs together.

    Args:
        host_numbers: whether this process has the host's pids (memory.sees_every_process). Without them the rows mean
            other processes, and none is given.
    """
    if not host_numbers:
        return GpuRows(kind=Device.CUDA, why=HIDDEN)
    try:
        import pynvml  # noqa: PLC0415 - only hosts that have a GPU pay for it
    except ImportError:
        return GpuRows(kind=Device.CUDA, why="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuRows(kind=Device.CUDA, why=_words(error))
    try:
        return _read(pynvml)
    except pynvml.NVMLError as error:
        return GpuRows(kind=Device.CUDA, why=_words(error))
    finally:
        _shut_down(pynvml)


def _read(pynvml: Any) -> GpuRows:  # noqa: ANN401 - the bindings carry no types
    rows: dict[int, int | None] = {}
    hidden = ""
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        try:
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        except pynvml.NVMLError as error:  # one GPU that is lost, or is cut in slices, hides only its own rows
            hidden = _words(error)
            continue
        for process in processes:
            held = process.usedGpuMemory
            before = rows.get(process.pid, 0)
            rows[process.pid] = None if held is None or before is None else before + int(held)
        if not processes and used > UNSEEN_BYTES:
            hidden = f"GPU {index} has {used >> 20} MiB in use and names no process"
    return GpuRows(rows, complete=not hidden, kind=Device.CUDA, why=hidden)


def _shut_down(pynvml: Any) -> None:  # noqa: ANN401
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # the driver is gone: there is nothing left to let go of
        return


def _words(error: Exception) -> str:
    return clean(f"NVML: {error}")
