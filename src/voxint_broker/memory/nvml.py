"""NVIDIA's management library: how much memory is free, and which processes hold the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from voxint_broker.adapters.processes import name_of
from voxint_broker.bounded import Bounded, StuckError
from voxint_broker.memory.reading import Card, Holder, Reading, compared, unknown

if TYPE_CHECKING:
    from voxint_broker.config_memory import NvmlMemory

_MIB = 1024 * 1024


class NvmlGauge:
    """Reads through NVML, with a limit: a driver in trouble can keep a call for ever."""

    def __init__(self, config: NvmlMemory) -> None:
        self._config = config
        self._look = Bounded(self._cards, config.answer_seconds)
        self._open = False

    def read(self) -> Reading:
        """Read every configured GPU."""
        try:
            return compared(self._look(), self._config.need_free_mib)
        except pynvml.NVMLError as error:
            # Begin anew next time: the driver may have been loaded, or loaded again, since.
            self._open = False
            return unknown(f"NVML: {error}")
        except (pynvml.NVMLLibraryMismatchError, StuckError, ValueError, OSError, UnicodeError) as error:
            return unknown(f"NVML: {error}")

    def _cards(self) -> list[Card]:
        if not self._open:
            pynvml.nvmlInit()
            self._open = True
        return [self._card(which) for which in self._config.gpus]

    def _card(self, which: int | str) -> Card:
        if isinstance(which, int):
            handle = pynvml.nvmlDeviceGetHandleByIndex(which)
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(which)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        free, total = int(memory.free) // _MIB, int(memory.total) // _MIB
        return Card(f"GPU {which}", free, total, _holders(handle))


def _holders(handle: object) -> tuple[Holder, ...]:
    """Who uses the memory, the greatest first. A list that cannot be had is empty: it is for people only."""
    found: dict[int, int] = {}
    for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3):
        try:
            processes = ask(handle)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
            continue
        for process in processes:
            # None on drivers that cannot tell, as under a virtual machine's.
            found[int(process.pid)] = max(found.get(int(process.pid), 0), int(process.usedGpuMemory or 0))
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return tuple(Holder(pid, name_of(pid), used // _MIB if used else None) for pid, used in ordered)
