"""Where fetched weights lie, a folder a revision. What is in its place is whole: see fetch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from voxint_models.serving.errors import WeightsMissingError
from voxint_models.weights import catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

IN_IMAGES = Path("/models")
"""Where the model images have their volume."""


def root(environ: Mapping[str, str] = os.environ) -> Path:
    """The kept volume's folder: MODELS_ROOT, the images' volume, or a folder of the user's."""
    named = environ.get("MODELS_ROOT")
    if named:
        return Path(named)
    if IN_IMAGES.is_dir():
        return IN_IMAGES
    data = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME") or "/tmp") / ".local" / "share"  # noqa: S108
    return Path(data) / "voxint" / "models"


def missing(weights: catalogue.Weights, folder: Path) -> list[catalogue.File]:
    """The model's files that are not there in full size."""
    return [file for file in weights.files if not _has(folder / weights.folder / file.path, file.size)]


def find(service: str, asked: str | None, environ: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """The path that was asked for or else the fetched weights' folder, and what to call it.

    Raises WeightsMissingError, which names the command to run.
    """
    if asked:
        path = Path(asked)
        if not path.exists():
            raise WeightsMissingError(f"no {service} weights at {path}: {command(service)}")
        return path, path.stem
    weights = catalogue.of(service)
    lacking = missing(weights, root(environ))
    if lacking:
        raise WeightsMissingError(
            f"no {service} weights under {root(environ)} ({weights.name}, {lacking[0].path} is not there): "
            f"{command(service)}",
        )
    return root(environ) / weights.folder, f"{weights.name}@{weights.revision[:12]}"


def command(service: str) -> str:
    """What to run where a service's weights are not there."""
    return f"run voxint models fetch --service {service}"


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
