"""Writes docs/reference/settings.md and .env.example from the settings. A test compares; `make docs` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from voxint.settings import LLM_FEATURES, NAMES, SECRETS, Settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "settings.md"
EXAMPLE = ROOT / ".env.example"
PER_SERVICE = (
    ("<NAME>_URL", "http://<name>:8000", "Where a service of GPU_PHASE_SERVICES answers."),
    ("<NAME>_HEALTH_PATH", "/healthz", "The path of its health answer."),
    ("<NAME>_COMMAND", "", "How it is started (SERVICE_CONTROL=process)."),
)


def default(name: str) -> str:
    """A setting's default as it stands in the environment."""
    value: Any = Settings.model_fields[name.lower()].default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows() -> list[tuple[str, str, str]]:
    """Name, default and sentence of every setting."""
    plain = [(name, default(name), Settings.model_fields[name.lower()].description or "") for name in NAMES]
    features = [(f"LLM_{name}_BASE_URL", "", f"Another endpoint for {name.lower()}.") for name in LLM_FEATURES]
    return [*plain, *features, *PER_SERVICE]


def page() -> str:
    """The table."""
    lines = [f"| `{name}` | {f'`{value}`' if value else 'empty'} | {text} |" for name, value, text in rows()]
    secret = ", ".join(f"`{name}`" for name in SECRETS)
    return (
        "# Settings\n\nMade from `src/voxint/settings.py` by `make docs`. All come from the environment; a blank value means"
        f" unset.\nA secret may come from a file, named by `<NAME>_FILE`: {secret}.\n\n"
        "| name | default | meaning |\n|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def example() -> str:
    """The environment file: every setting with its default, commented out."""
    parts = [f"# {text}\n# {name}={value}\n" for name, value, text in rows()]
    head = "# Settings of Voxint, with their defaults. Made from src/voxint/settings.py by `make docs`.\n"
    return (
        head + "# Take the # away from a name to set it. No quotes and no spaces around a value.\n\n" + "\n".join(parts)
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    EXAMPLE.write_text(example(), encoding="utf-8")
