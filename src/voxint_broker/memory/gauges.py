"""The gauges that need no library: none, a lock file, AMD's files in /sys, a command."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, assert_never

from voxint_broker import bounded
from voxint_broker.adapters.processes import name_of
from voxint_broker.config_memory import CommandMemory, LockMemory, NoMemory, NvmlMemory, SysfsMemory
from voxint_broker.memory.nvml import NvmlGauge
from voxint_broker.memory.reading import Card, Gauge, Holder, Reading, compared, unknown

if TYPE_CHECKING:
    from pathlib import Path

    from voxint_broker.config_memory import AnyMemory

_MIB = 1024 * 1024


class NoGauge:
    """Nothing is read: the processes being gone is the whole proof."""

    def read(self) -> Reading:
        """Always enough."""
        return Reading(enough=True, detail="not read")


class LockGauge:
    """A lock file that everybody keeps who has a model on the GPU. It is taken for a moment to see that it is free."""

    def __init__(self, config: LockMemory) -> None:
        self._path = config.path

    def read(self) -> Reading:
        """Try the lock."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            return unknown(f"cannot open {self._path}: {error.strerror}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Reading(enough=False, detail=f"the lock {self._path} is taken")
        except OSError as error:
            return unknown(f"cannot lock {self._path}: {error.strerror}")
        finally:
            os.close(fd)
        return Reading(enough=True, detail=f"the lock {self._path} is free")


class SysfsGauge:
    """AMD's driver: mem_info_vram_total and mem_info_vram_used of each card, in bytes."""

    def __init__(self, config: SysfsMemory) -> None:
        self._config = config
        self._look = bounded.Bounded(self._cards, config.answer_seconds)

    def read(self) -> Reading:
        """Read the files of every card."""
        try:
            return compared(self._look(), self._config.need_free_mib)
        except (OSError, ValueError, bounded.StuckError) as error:
            return unknown(str(error))

    def _cards(self) -> list[Card]:
        found, holders = [], self._holders()
        for name in self._config.cards:
            device = self._config.root / name / "device"
            total = _number(device / "mem_info_vram_total")
            used = _number(device / "mem_info_vram_used")
            if not 0 <= used <= total:
                raise ValueError(f"{name}: {used} of {total} bytes used cannot be")
            found.append(Card(name, (total - used) // _MIB, total // _MIB, holders))
        return found

    def _holders(self) -> tuple[Holder, ...]:
        """Who uses the memory of AMD GPUs through the compute driver. A list that cannot be had is empty."""
        used: dict[int, int] = {}
        for file in self._config.kfd.glob("*/vram_*"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.parent.name)
                used[pid] = used.get(pid, 0) + _number(file)
        ordered = sorted(used.items(), key=lambda item: -item[1])
        return tuple(Holder(pid, name_of(pid), bytes_ // _MIB) for pid, bytes_ in ordered if bytes_ > 0)


class CommandGauge:
    """A command that prints the free MiB, a line for each GPU."""

    def __init__(self, config: CommandMemory) -> None:
        self._config = config

    def read(self) -> Reading:
        """Run it."""
        ran = bounded.run(self._config.command, self._config.answer_seconds)
        if ran.status != 0:
            return unknown(ran.problem)
        lines = [line.strip() for line in ran.output.splitlines() if line.strip()]
        if not lines or not all(line.isascii() and line.isdigit() and len(line) < 12 for line in lines):
            said = " ".join(ran.output.split())[:80]
            return unknown(f"{self._config.command[0]} printed {said!r}, and not a number of MiB a line")
        cards = [Card(f"GPU {place}", int(line), int(line)) for place, line in enumerate(lines)]
        reading = compared(cards, self._config.need_free_mib)
        words = ", ".join(f"{card.name}: {card.free_mib} MiB free" for card in cards)
        return Reading(reading.enough, f"{words}, {self._config.need_free_mib} needed", reading.cards)


def gauge_of(config: AnyMemory) -> Gauge:
    """The gauge that a configuration asks for."""
    match config:
        case NoMemory():
            return NoGauge()
        case LockMemory():
            return LockGauge(config)
        case NvmlMemory():
            return NvmlGauge(config)
        case SysfsMemory():
            return SysfsGauge(config)
        case CommandMemory():
            return CommandGauge(config)
        case _:
            assert_never(config)


def _number(path: Path) -> int:
    text = path.read_text(encoding="ascii").strip()
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{path} holds {text[:40]!r}, and no number") from error
