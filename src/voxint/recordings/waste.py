"""The waste bin of the media folder: a deletion that is cut off anywhere loses no kept file and leaves no stray one.

A run's folder goes into the bin in the transaction that deletes the run. What is in the bin and belongs to a run after
all, as that transaction did not end well, goes back; the rest is taken away.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

FOLDER = "runs/.deleted"


def put(media_root: Path, folder: str) -> None:
    """Put a run's folder into the bin; one that was never made is no matter."""
    source = media_root / folder
    target = media_root / FOLDER / source.name
    if source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)


def empty(engine: Engine, media_root: Path) -> None:
    """Give back what a run still speaks of, and take away the rest."""
    root = media_root / FOLDER
    if not root.is_dir():
        return
    present = {f"runs/{path.name}": path for path in root.iterdir()}
    # The share lock waits for a deletion that is under way: before its end nobody knows whose the folder is.
    query = "SELECT folder FROM run WHERE folder = ANY(:folders) FOR SHARE"
    with engine.begin() as connection:
        kept = set(connection.execute(text(query), {"folders": list(present)}).scalars())
    for folder, path in present.items():
        if folder in kept:
            with suppress(OSError):
                path.rename(media_root / folder)
        else:
            shutil.rmtree(path, ignore_errors=True)
