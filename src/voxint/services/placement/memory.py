"""GPU memory by process: what a row means, and when the absence of a row means anything.

A row names a process by its number on the host. Inside a container's own pid namespace the numbers are others, and the
rows are empty or zero: nothing can be told there, least of all that a process is on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from voxint.services.placement.devices import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own number for the pid namespace of the machine (PROC_PID_INIT_INO)."""

UNSEEN_BYTES = 1 << 30
"""More than this in use with no row at all means that rows are hidden, not that nobody holds it."""


@dataclass(frozen=True, slots=True)
class GpuRows:
    """The processes that hold GPU memory, by pid on the host, in bytes; None where the driver gives no figure."""

    rows: Mapping[int, int | None] = field(default_factory=dict)
    complete: bool = False
    """Whether every process that holds GPU memory has a row, so that a missing one means none."""
    kind: Device = Device.GPU
    why: str = ""
    """Why the rows are not complete, in words."""


def held_by(seen: GpuRows, pids: Iterable[int]) -> int | None:
    """GPU memory that these processes hold together, in bytes; None where it cannot be told.

    A row without a figure, and a row of zero, tell nothing. No row is zero only where all rows can be seen.
    """
    ours = list(pids)
    figures = [seen.rows[pid] for pid in ours if pid in seen.rows]
    if any(not figure for figure in figures):
        return None
    if figures:
        return sum(figure for figure in figures if figure)
    return 0 if seen.complete and ours else None


def sees_every_process(proc: Path = Path("/proc")) -> bool:
    """Whether this process has the host's own numbering of processes, and so can match the driver's rows.

    Not so in a container with a pid namespace of its own, nor in a virtual machine of WSL, whose rows stay with Windows.
    """
    try:
        if str((proc / "self" / "ns" / "pid").readlink()) != _FIRST_NAMESPACE:
            return False
        return "microsoft" not in (proc / "version").read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


HIDDEN = "the rows of processes cannot be matched from inside a container"
