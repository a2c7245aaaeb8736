"""The file that lets model containers start: written by the gpu-phase worker alone, read by their entrypoint.

A container that something else starts (`up -d`, a person, a reboot) finds no leave in it and ends at once, before it
loads a model. A leave is good for a short time after it was written and for this boot; the entrypoint
(voxint_models.turn) judges that by the file's time, so that no clock of ours is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""What the kernel calls this boot; the same in every container of the host."""


def give_leave(path: Path) -> None:
    """Let the model services start now.

    Raises:
        OSError: the file cannot be written, so that they would not start.
    """
    _write(path, leave=True, text="Voxint's model services have the GPU")


def take_leave(path: Path) -> None:
    """Keep the model services from starting. Where the file cannot be written, the leave ends by its age."""
    with contextlib.suppress(OSError):
        _write(path, leave=False, text="the GPU is not Voxint's now, or on its way back to the language model")


def _write(path: Path, *, leave: bool, text: str) -> None:
    document = {"leave": leave, "boot_id": BOOT_ID.read_text(encoding="utf-8").strip(), "says": text}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(document) + "\n", encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
