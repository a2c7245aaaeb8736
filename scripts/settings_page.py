"""Writes docs/reference/settings.md and .env.example from the settings. A test compares; `make docs` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from voxint.settings import LLM_FEATURES, NAMES, SECRETS, WARM_UPS, Level, Settings, level_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "settings.md"
EXAMPLE = ROOT / ".env.example"
PER_SERVICE = (
    ("<NAME>_URL", "http://<name>:8000", Level.BASIC, "Where a service of GPU_PHASE_SERVICES answers, as WHISPER_URL."),
    ("<NAME>_MODEL", "default", Level.ADVANCED, "Its model's name in requests."),
    ("<NAME>_HEALTH_PATH", "/healthz", Level.ADVANCED, "The path of its health answer; /health for speaches."),
    ("<NAME>_WARM_UP", "none", Level.ADVANCED, f"The small request that loads its model: {', '.join(WARM_UPS)}."),
    ("<NAME>_COMMAND", "", Level.ADVANCED, "How it is started (SERVICE_CONTROL=process)."),
)
COMPOSE_FILES = (*sorted(ROOT.glob("compose*.yaml")), *sorted((ROOT / "examples" / "two-hosts").glob("*.yaml")))
_BASIC, _ADVANCED = Level.BASIC, Level.ADVANCED
IN_COMPOSE = {
    "POSTGRES_PASSWORD": (
        _BASIC,
        "The database's password. Set it before the first start: later only PostgreSQL changes it.",
    ),
    "CONSOLE_PUBLISH": (_BASIC, "Where the console is reached on the host."),
    "GPU_DEVICE_IDS": (_BASIC, "Which NVIDIA card, by number or UUID: `nvidia-smi -L`."),
    "DOCKER_GID": (_BASIC, "The Docker socket's group, for GPU sharing: `stat -c %g /var/run/docker.sock`."),
    "RENDER_GID": (_BASIC, "The render nodes' group, for ROCm: `stat -c %g /dev/dri/renderD128`."),
    "VIDEO_GID": (_ADVANCED, "The group of /dev/kfd, for ROCm."),
    "TZ": (_BASIC, "The time zone of GPU_PHASE_WINDOWS, as Europe/Berlin. Empty: UTC."),
    "CONSOLE_PASSWORD_FILE": (
        _ADVANCED,
        "A file with the console's password, which a mount of your own puts into `api`.",
    ),
    "DOCKER_SOCKET": (_ADVANCED, "The Docker socket on the host."),
    "<NAME>_IMAGE": (_ADVANCED, "The image of WHISPER, PYANNOTE, TITANET, VOXINT itself, POSTGRES or REDIS."),
    "<NAME>_ENGINE": (_ADVANCED, "What a model server computes with; see how-to/model-servers.md."),
    "<NAME>_MODEL_PATH": (_ADVANCED, "The weights of a model server, in the volume `models`."),
    "<NAME>_THREADS": (_ADVANCED, "How many processors a model server uses."),
    "WHISPER_DEVICE": (_ADVANCED, "The device of whisper on ROCm."),
    "<PART>_MEMORY": (_ADVANCED, "The memory limit of APP, WORKER, MODEL, POSTGRES or SPEACHES."),
    "BASE_IMAGE": (_ADVANCED, "What the images are built on."),
    "WORKER_CONCURRENCY": (_ADVANCED, "How many stages the worker of a second host runs at the same time."),
    "SHARE_ADDRESS": (_ADVANCED, "The first host's address in a network of your own; see how-to/growing.md."),
    "SHARED_MEDIA": (_ADVANCED, "Where a second host has the media folder mounted; see how-to/growing.md."),
    "SPEACHES_CACHE": (_ADVANCED, "The folder of speaches' models; see how-to/speaches.md."),
    "SPEACHES_PUBLISH": (_ADVANCED, "Where speaches is reached on the host."),
    "SPEACHES_RESTART": (_ADVANCED, "Its restart policy: `unless-stopped` where the GPU is not shared."),
}
"""What only the compose files read from `.env`. A test compares it with the files."""
AT_HOME = (
    (
        "VOXINT_HOME",
        "",
        _BASIC,
        "The data folder of `voxint standalone` and of commands beside it. Empty: the user's own.",
    ),
    ("VOXINT_POSTGRES_BIN", "", _ADVANCED, "The folder of your own PostgreSQL's programs, for `voxint standalone`."),
    ("VOXINT_VALKEY_BIN", "", _ADVANCED, "The program of your own Valkey or Redis, for `voxint standalone`."),
)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-?]([^}]*))?\}")
_MANY = {"<NAME>": ("WHISPER", "PYANNOTE", "TITANET", "VOXINT", "POSTGRES", "REDIS")}
_MANY["<PART>"] = ("APP", "WORKER", "MODEL", "POSTGRES", "SPEACHES")


_NOT_COMPOSE = "without Docker"
"""Of a setting that the compose files give a value of their own, or leave at its default."""


class Row(NamedTuple):
    """One line of the table."""

    name: str
    default: str
    level: Level
    text: str
    where: str = "everywhere"


def in_compose() -> dict[str, str]:
    """Every variable of the compose files that is none of the product's settings, and its default there."""
    known = {*NAMES, *(f"LLM_{name}_BASE_URL" for name in LLM_FEATURES)}
    known |= {name.replace("<NAME>", service) for name, *_ in PER_SERVICE for service in _MANY["<NAME>"]}
    text = _compose_text()
    found = {name: value for name, value in _VARIABLE.findall(text) if name not in known}
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    return {name: "" if name in asked else value for name, value in found.items()}


def _compose_text() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in COMPOSE_FILES)


def members(name: str) -> list[str]:
    """The variables that a name such as <NAME>_IMAGE stands for."""
    for blank, each in _MANY.items():
        if blank in name:
            return [name.replace(blank, one) for one in each]
    return [name]


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


def rows() -> list[Row]:
    """Every setting, the basic ones first."""
    described = {name: Settings.model_fields[name.lower()].description or "" for name in NAMES}
    passed = {name for name, _ in _VARIABLE.findall(_compose_text())}
    plain = [
        Row(name, default(name), level_of(name), text, "everywhere" if name in passed else _NOT_COMPOSE)
        for name, text in described.items()
    ]
    features = [
        Row(f"LLM_{name}_BASE_URL", "", _ADVANCED, f"Another endpoint for {name.lower()}.") for name in LLM_FEATURES
    ]
    services = [Row(*each) for each in PER_SERVICE]
    defaults = in_compose()
    compose = [Row(name, defaults.get(name, ""), level, text, "compose") for name, (level, text) in IN_COMPOSE.items()]
    home = [Row(*each, _NOT_COMPOSE) for each in AT_HOME]
    return sorted([*plain, *features, *services, *compose, *home], key=lambda row: row.level is not Level.BASIC)


def page() -> str:
    """The table."""
    secret = ", ".join(f"`{name}`" for name in SECRETS)
    lines = [
        f"| `{row.name}` | {f'`{row.default}`' if row.default else 'empty'} | {row.level.value} | {row.where} | {_cell(row.text)} |"
        for row in rows()
    ]
    return (
        "# Settings\n\nMade from `src/voxint/settings.py` and the compose files by `make docs`. All come from the environment; a"
        " blank value means unset.\nWith Docker they stand in `.env` beside the compose files; `.env.example` has them all.\n"
        "Basic: it says what is there, or is a choice that most people make. Advanced: the default is right almost everywhere.\n"
        "`compose`: only the compose files read it. `without Docker`: there it is yours to set; compose sets it itself, or needs none.\n"
        f"A secret may come from a file, named by `<NAME>_FILE`: {secret}.\n"
        "The broker has a file of its own ([broker-settings](broker-settings.md)), the model servers options and variables"
        " ([model-servers](../how-to/model-servers.md)).\n\n"
        "| name | default | level | read | meaning |\n|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def example() -> str:
    """The environment file: every setting with its default, commented out."""
    kept = [row for row in rows() if row.where != _NOT_COMPOSE]
    parts = []
    for level in Level:
        parts.append(f"# ---- {level.value} ----\n")
        parts += [f"# {row.text}\n# {row.name}={row.default}\n" for row in kept if row.level is level]
    head = "# Settings of Voxint, with their defaults. Made from src/voxint/settings.py by `make docs`.\n"
    return (
        head + "# Take the # away from a name to set it. No quotes and no spaces around a value.\n\n" + "\n".join(parts)
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    EXAMPLE.write_text(example(), encoding="utf-8")
