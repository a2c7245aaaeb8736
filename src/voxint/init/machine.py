"""What can be found out about a host without asking anybody."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ZONE_FILES = Path("usr/share/zoneinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """A host, as far as the compose files depend on it. None where nothing was found."""

    tier: str
    """gpu (an NVIDIA driver is loaded), rocm (an AMD one), or cpu."""
    cards: tuple[str, ...] = ()
    """NVIDIA's cards in words, with their UUIDs, as `nvidia-smi -L` names them."""
    docker_socket: Path = Path("/var/run/docker.sock")
    docker_gid: int | None = None
    """The group of the Docker socket."""
    render_gid: int | None = None
    """The group of the first render node."""
    video_gid: int | None = None
    """The group of the AMD driver's device."""
    zone: str | None = None
    """The name of its time zone."""


def look(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Look at devices, sockets and drivers below `root`; nothing is opened that could wake a device up."""
    host = environ.get("DOCKER_HOST", "").strip()
    socket = Path(host.removeprefix("unix://")) if host.startswith("unix://") else Path("/var/run/docker.sock")
    kfd = root / "dev/kfd"
    nodes = sorted((root / "dev/dri").glob("renderD*"))
    return Machine(
        tier="gpu" if (root / "proc/driver/nvidia/version").exists() else "rocm" if kfd.exists() else "cpu",
        cards=_cards(root / "proc/driver/nvidia/gpus"),
        docker_socket=socket,
        docker_gid=_group(root / socket.relative_to("/") if socket.is_absolute() else socket),
        render_gid=_group(nodes[0]) if nodes else None,
        video_gid=_group(kfd),
        zone=_zone(environ, root),
    )


def _group(path: Path) -> int | None:
    try:
        return path.stat().st_gid
    except OSError:
        return None


def _cards(folder: Path) -> tuple[str, ...]:
    found = []
    for file in sorted(folder.glob("*/information")):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        values = dict(re.findall(r"^([^:\n]+?)\s*:\s*(.+?)\s*$", text, re.MULTILINE))
        found.append(f"{values.get('Model', 'unknown')} ({values.get('GPU UUID', file.parent.name)})")
    return tuple(found)


def _zone(environ: Mapping[str, str], root: Path) -> str | None:
    named = environ.get("TZ", "").strip().removeprefix(":")
    if not named:
        try:
            target = str((root / "etc/localtime").readlink())
            named = target.partition("zoneinfo/")[2]
        except OSError:
            return None
    return named if re.fullmatch(r"[A-Za-z0-9_+/-]+", named) and (root / _ZONE_FILES / named).is_file() else None
