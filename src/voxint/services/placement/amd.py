"""Which processes hold memory of AMD GPUs, from the kernel's own files. Never raises.

amdkfd keeps a folder a process, `/sys/class/kfd/kfd/proc/<pid>/`, with one file `vram_<gpu id>` a GPU, in bytes. amdgpu
says how much a card has in use: `/sys/class/drm/card<n>/device/mem_info_vram_used`.
"""

from __future__ import annotations

from pathlib import Path

from voxint.services.placement.devices import Device
from voxint.services.placement.memory import HIDDEN, UNSEEN_BYTES, GpuRows

SYS = Path("/sys")


def read_amd(*, host_numbers: bool, root: Path = SYS) -> GpuRows:
    """The rows of all GPUs together.

    Args:
        host_numbers: whether this process has the host's pids (memory.sees_every_process).
        root: where sysfs is mounted.
    """
    if not host_numbers:
        return GpuRows(kind=Device.ROCM, why=HIDDEN)
    processes = root / "class" / "kfd" / "kfd" / "proc"
    try:
        folders = [folder for folder in processes.iterdir() if folder.name.isdecimal()]
    except OSError as error:
        return GpuRows(kind=Device.ROCM, why=f"cannot read {processes}: {error.strerror or error}")
    rows = {int(folder.name): _held(folder) for folder in folders}
    used = _in_use(root)
    hidden = ""
    if not rows and used > UNSEEN_BYTES:
        hidden = f"the cards have {used >> 20} MiB in use, and no process is named"
    return GpuRows(rows, complete=not hidden, kind=Device.ROCM, why=hidden)


def _held(folder: Path) -> int | None:
    """What one process holds, over all GPUs; None where a file cannot be read."""
    try:
        return sum(int(path.read_text(encoding="ascii")) for path in folder.glob("vram_*"))
    except (OSError, ValueError):
        return None


def _in_use(root: Path) -> int:
    total = 0
    for path in (root / "class" / "drm").glob("card[0-9]*/device/mem_info_vram_used"):
        try:
            total += int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return total
