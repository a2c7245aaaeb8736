"""Writes docs/reference/broker-settings.md from the broker's configuration. A test compares; `make docs` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from voxint_broker import config, config_memory, config_services

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from voxint_broker.config_parts import ConfigPart

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "broker-settings.md"
SERVICE = "Its name, by which status and log call it; unique in the file."
TABLES: tuple[tuple[str, str, type[ConfigPart]], ...] = (
    ("The file's own keys", "", config.Config),
    ("`[lease]`", "", config.LeaseRules),
    ('`[memory]` with kind = "none"', "", config_memory.NoMemory),
    ('`[memory]` with kind = "lock"', "", config_memory.LockMemory),
    ('`[memory]` with kind = "nvml"', "", config_memory.NvmlMemory),
    ('`[memory]` with kind = "sysfs"', "", config_memory.SysfsMemory),
    ('`[memory]` with kind = "command"', "", config_memory.CommandMemory),
    ("`[[service]]` of every kind", SERVICE, config_services.Service),
    ('`[[service]]` with kind = "child"', "", config_services.ChildService),
    ('`[[service]]` with kind = "command"', "", config_services.CommandService),
    ('`[[service]]` with kind = "systemd"', "", config_services.SystemdService),
    ('`[[service]]` with kind = "docker"', "", config_services.DockerService),
    ('`[[service]]` with kind = "compose"', "", config_services.ComposeService),
    ('`[[service]]` with kind = "http"', "", config_services.HttpService),
    ("`[service.ready]`", "", config_services.Ready),
    ("`[service.drain]`", "", config_services.Drain),
)
APART = frozenset({"kind", "lease", "memory", "service"})
"""Keys that are tables of their own, or stand in the heading."""


def default(field: FieldInfo) -> str:
    """A key's default as it stands in the file."""
    value: Any = field.default
    if value is PydanticUndefined:
        return "must be set"
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value, default=str, ensure_ascii=False)}`"


def rows(part: type[ConfigPart], name: str) -> list[str]:
    """The table's rows: the keys that its kind has beside those of every service."""
    common = set() if part is config_services.Service else set(config_services.Service.model_fields)
    found = []
    for key, field in part.model_fields.items():
        apart = key in APART and not (part is config_services.Drain and key == "kind")
        if apart or (issubclass(part, config_services.Service) and key in common):
            continue
        said = field.description or (name if key == "name" else "")
        found.append(f"| `{key}` | {default(field)} | {said} |")
    return found


def page() -> str:
    """The whole page."""
    lines = [
        "# The broker's configuration",
        "",
        "Made from the code: `make docs`. TOML; relative paths start at the file's folder; unknown keys are errors with a hint, and every problem is told at the start.",
        "Examples to begin with are in `examples/broker`; what runs and how it is tried is in [write-a-broker](../how-to/write-a-broker.md).",
        "SIGHUP reads the file again; `listen`, `state_dir`, `audit_file`, `notify`, `stop_services_on_exit`, `log_json` and the services' names and kinds need a restart.",
    ]
    for heading, name, part in TABLES:
        told = (part.__doc__ or "").strip().splitlines()[0]
        lines += ["", f"## {heading}", "", *([told, ""] if part is not config.Config else [])]
        lines += ["| key | default | what it is |", "|---|---|---|", *rows(part, name)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
