"""Where a command finds its settings: the environment, and what a standalone Voxint wrote down for it."""

from __future__ import annotations

import getpass
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from voxint.cli.output import CouldNotError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxint.settings import Settings
    from voxint.wiring import Parts

ENVIRONMENT_FILE = "voxint.env"
"""Written by `voxint standalone` into its data folder: NAME=value lines, each value as it is."""


def data_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the standalone Voxint: VOXINT_HOME, or the user's own data folder."""
    named = environ.get("VOXINT_HOME", "").strip()
    if named:
        return Path(named)
    base = environ.get("XDG_DATA_HOME", "").strip()
    home = environ.get("HOME", "").strip() or "/"
    return (Path(base) if base else Path(home) / ".local" / "share") / "voxint"


def complete(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, and below it the standalone's file where DATABASE_URL is not set.

    Raises:
        CouldNotError: the file is there and cannot be read.
    """
    if environ.get("DATABASE_URL", "").strip() or environ.get("DATABASE_URL_FILE", "").strip():
        return dict(environ)
    path = data_folder(environ) / ENVIRONMENT_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return dict(environ)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CouldNotError(f"cannot read {path}: {why}. Set DATABASE_URL to do without it.") from error
    return {**parse(text), **{name: value for name, value in environ.items() if value.strip()}}


def parse(text: str) -> dict[str, str]:
    """The names and values of an environment file. Blank lines and lines that begin with # say nothing."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value for name, value in pairs}


def settings() -> Settings:
    """The checked settings. The environment of this process is completed first, for the parts that read it.

    Raises:
        CouldNotError: the standalone's file cannot be read.
        SettingsError: one line for each setting that cannot be used.
    """
    from voxint.settings import load_settings  # noqa: PLC0415 - `--help` needs no settings

    os.environ.update(complete(os.environ))
    return load_settings(os.environ)


@contextmanager
def parts() -> Iterator[Parts]:
    """Everything that these settings make, let go of at the end."""
    from voxint.wiring import make  # noqa: PLC0415

    made = make(settings())
    try:
        yield made
    finally:
        made.close()


def operator() -> str:
    """Who types, for the record of requests."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user that has no name
        name = f"uid {os.getuid()}"
    return f"{name} (command line)"
