"""Writes docs/reference/services.md: what the compose files come to, and what each overlay changes.

Made by the tests' own renderer, which tests/docker compares with compose's. A test compares the page; `make docs` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from compose_render import render  # noqa: E402 - stands in tests/support

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "reference" / "services.md"
SOCKET = "/var/run/docker.sock"
ROCM = {"COMPUTE_TIER": "rocm", "WHISPER_IMAGE": "your/whisper-for-rocm:1.2.3"}
PASSWORD = {"CONSOLE_PASSWORD": "yours"}
BASE = ("compose.yaml",)
GPU = ("compose.yaml", "compose.gpu.yaml")
SHARED = (*GPU, "compose.gpu-phase.yaml")
ROCM_TIER = ("compose.yaml", "compose.rocm.yaml")
STEPS = (
    (BASE, "compose.cpu.yaml"),
    (BASE, "compose.gpu.yaml"),
    (BASE, "compose.rocm.yaml"),
    (GPU, "compose.gpu-phase.yaml"),
    (ROCM_TIER, "compose.gpu-phase.yaml"),
    (SHARED, "compose.socket-proxy.yaml"),
    (GPU, "compose.service-controls.yaml"),
    (SHARED, "compose.service-controls.yaml"),
)
"""Files that are there, and the one that comes after them."""
INTRO = """# The compose files, rendered

Made from the compose files by `make docs`, with no variable set but those that must be; a test compares, and tests/docker
compares the rendering with compose's own.
"""
HELD_DOWN = """Each of ours also has `cap_drop: ALL`, `no-new-privileges`, and logs of at most 5 files of 10 MB;
`tests/unit/test_compose_files.py` holds that for every combination.
"""


def rendered(names: tuple[str, ...]) -> dict[str, Any]:
    """The services, volumes and networks of these files."""
    merged: dict[str, Any] = render(names, PASSWORD | (ROCM if "compose.rocm.yaml" in names else {}))
    return merged


def combinations() -> Iterator[tuple[str, ...]]:
    """Every documented line of `-f` options, once."""
    seen = set()
    for before, name in STEPS:
        for names in (before, (*before, name)):
            if len(names) > 1 and names not in seen:
                seen.add(names)
                yield names


def targets(service: dict[str, Any]) -> list[str]:
    """Where its mounts go, `ro` where it may not write."""
    return [one["target"] + (" (ro)" if one["read_only"] else "") for one in service["volumes"]]


def cell(value: object) -> str:
    """A value in a table."""
    if value is None or value in ("", [], {}):
        return "-"
    match value:
        case dict():
            return "<br>".join(f"`{name}`: {cell(item)}" for name, item in value.items())
        case list():
            return "<br>".join(cell(item) for item in value)
    return f"`{str(value).replace('|', '/')}`"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def overview() -> str:
    """Every combination: how many services, which are beyond the base, who has the socket and who consumes the ticks."""
    base = rendered(BASE)["services"]
    rows = []
    for names in combinations():
        services = rendered(names)["services"]
        by_default = {name: one for name, one in services.items() if "profiles" not in one}
        more = [name for name in services if name not in base]
        socket = [name for name, one in services.items() if SOCKET in {mount["target"] for mount in one["volumes"]}]
        ticks = [name for name, one in services.items() if "--gpu-phase" in (one.get("command") or [])]
        files = " ".join(f"-f {name}" for name in names)
        rows.append([f"`{files}`", str(len(by_default)), cell(more), cell(socket), cell(ticks)])
    head = ["files", "services that `up` starts", "beyond compose.yaml", "has the Docker socket", "consumes the ticks"]
    return table(head, rows)


def services_of(names: tuple[str, ...]) -> str:
    """The services of one combination, a row each."""
    rows = []
    for name, one in rendered(names)["services"].items():
        gpu = one.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
        rows.append(
            [
                f"`{name}`" + (" (only with its profile)" if "profiles" in one else ""),
                cell(one["image"]),
                cell(" ".join(one["command"]) if one.get("command") else None),
                cell(str(one.get("restart"))),
                "yes" if one.get("read_only") else "no",
                cell([f"cap_add {cap}" for cap in one.get("cap_add", [])]),
                cell(one.get("mem_limit")),
                "yes" if gpu else "-",
                cell(targets(one)),
                cell(one.get("ports")),
                cell(one.get("stop_grace_period", "10s")),
            ]
        )
    head = [
        "service",
        "image",
        "command",
        "restart",
        "read-only",
        "capabilities",
        "memory",
        "GPU",
        "mounts",
        "published",
    ]
    return table([*head, "grace"], rows)


def differences(before: object, after: object, where: tuple[str, ...] = ()) -> Iterator[tuple[str, object, object]]:
    """Every place below two values where they differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key), after.get(key), (*where, str(key)))
    elif before != after:
        yield ".".join(where), before, after


def plain(service: dict[str, Any] | None) -> dict[str, Any] | None:
    """A service with its mounts as short text."""
    return None if service is None else {**service, "volumes": targets(service)}


def changes(before: tuple[str, ...], name: str) -> str:
    """What one file does to those before it; services that change alike share their rows."""
    old, new = rendered(before), rendered((*before, name))
    alike: dict[str, list[str]] = {}
    for service, now in new["services"].items():
        if service not in old["services"]:
            alike.setdefault(f"| a new service | - | {cell(' '.join(now.get('command') or []))} |", []).append(service)
            continue
        for where, was, is_now in differences(plain(old["services"][service]), plain(now)):
            alike.setdefault(f"| `{where}` | {cell(was)} | {cell(is_now)} |", []).append(service)
    rows = [f"| {', '.join(f'`{one}`' for one in services)} {row}" for row, services in alike.items()]
    rows += [
        f"| (project) | {kind} | - | `{one}` |"
        for kind in ("volumes", "networks")
        for one in new.get(kind, {})
        if one not in old.get(kind, {})
    ]
    head = "| service | what | before | after |\n| --- | --- | --- | --- |\n"
    return f"\n### `{name}` after `{' '.join(before)}`\n\n{head}" + "\n".join(rows) + "\n"


def page() -> str:
    """The page."""
    parts = [INTRO, "\n## Combinations\n\n", overview()]
    parts += ["\n## The services on an NVIDIA host with GPU sharing\n\n", services_of(SHARED)]
    parts += ["\n", HELD_DOWN, "\n## What each file changes\n"]
    parts += [changes(before, name) for before, name in STEPS]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
