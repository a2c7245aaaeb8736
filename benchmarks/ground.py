"""What the measurements stand on: a PostgreSQL and a Valkey of their own, as a standalone has them, below build/."""

from __future__ import annotations

import contextlib
import os
import shutil
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.standalone.postgres import EmbeddedPostgres
from voxint.standalone.valkey import EmbeddedValkey

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
_numbers = count(1)


@contextlib.contextmanager
def folder(name: str) -> Iterator[Path]:
    """An empty folder below build/, gone at the end."""
    made = BUILD / f"{name}-{os.getpid()}-{next(_numbers)}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of a migrated, empty database on a server with the settings that a standalone's has."""
    with folder("postgres") as place:
        server = EmbeddedPostgres(place / "data", place / "server.log", options={"max_connections": "100"})
        server.start()
        try:
            server.make_database("voxint")
            engine = make_engine(server.url("voxint"))
            upgrade(engine)
            engine.dispose()
            yield server.url("voxint")
        finally:
            server.stop()


@contextlib.contextmanager
def valkey() -> Iterator[str]:
    """The address of an empty Valkey."""
    with folder("valkey") as place:
        server = EmbeddedValkey(place / "data", place / "server.log")
        server.start()
        try:
            yield server.url
        finally:
            server.stop()
