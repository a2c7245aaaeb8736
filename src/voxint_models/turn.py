"""The entrypoint of the model images: `python -m voxint_models.turn COMMAND...` runs the command if it is our turn.

Where GPU sharing is on, a model container may be started by anything: `docker compose up -d`, a person, a reboot. Before
it loads a model it looks at the turn file, which only the gpu-phase worker writes, right before it starts the services.
No leave in it, one that is old, or one of another boot: the container ends with 75 and one line that says so. Where
sharing is off no turn file is named, and the command runs at once.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxint_models import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXIT_NOT_OUR_TURN = 75
"""The exit status of a container that something else than the gpu-phase worker started."""

LEAVE_SECONDS = 120.0
"""How long a leave is good after it was written: the worker writes it anew each time that it starts services."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
"""Every way in which the worker's own settings read `true`: where the two differ, models start beside the other side."""


@dataclass(frozen=True)
class Leave:
    """What the turn file says, and how old it is in seconds. A file from the future has a negative age."""

    given: bool
    boot_id: str
    says: str
    age_seconds: float


def refusal(leave: Leave | None, boot_id: str) -> str | None:
    """Why the service may not start, or None where it may."""
    if leave is None:
        return "the gpu-phase worker has not written the turn file yet"
    if not leave.given:
        return leave.says or "it is not this service's turn"
    if leave.boot_id != boot_id:
        return "the leave to start is from before the last reboot"
    if abs(leave.age_seconds) > LEAVE_SECONDS:
        return f"the leave to start is {abs(leave.age_seconds):.0f} s old"
    return None


def read(path: Path) -> Leave | None:
    """The turn file, or None where there is none that can be read."""
    try:
        written = path.stat().st_mtime
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    return Leave(
        given=document.get("leave") is True,
        boot_id=str(document.get("boot_id", "")),
        says=str(document.get("says", "")),
        age_seconds=clock.now().timestamp() - written,
    )


def why_not(environ: Mapping[str, str], boot_id_file: Path = _BOOT_ID) -> str | None:
    """Why a service with this environment may not start now, or None where it may."""
    path = environ.get("GPU_TURN_FILE", "").strip()
    if not path or environ.get("GPU_PHASE_ENABLED", "").strip().lower() not in _TRUE:
        return None
    try:
        boot_id = boot_id_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        return f"cannot tell this boot from another: {error}"
    return refusal(read(Path(path)), boot_id)


def main(argv: Sequence[str] | None = None) -> int:
    """Become the command, or end; the exit status."""
    command = list(sys.argv[1:] if argv is None else argv)
    if not command:
        sys.stderr.write("usage: python -m voxint_models.turn COMMAND...\n")
        return 2
    why = why_not(os.environ)
    if why is not None:
        sys.stderr.write(
            f"not started: GPU sharing is on and this is not Voxint's turn: {why}. "
            "The gpu-phase worker starts this service when recordings wait; to ask for it: voxint gpu-phase audio-now\n"
        )
        return EXIT_NOT_OUR_TURN
    try:
        os.execvp(command[0], command)  # noqa: S606 - the container's command takes this process's place
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        return 126 if isinstance(error, PermissionError) else 127


if __name__ == "__main__":
    sys.exit(main())
