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
    from collections.abc import Callable, Iterator

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
def server() -> Iterator[Callable[[str], str]]:
    """Makes migrated, empty databases by name, and gives their addresses. The server has a standalone's settings."""
    with folder("postgres") as place:
        running = EmbeddedPostgres(place / "data", place / "server.log", options={"max_connections": "100"})
        running.start()

        def make(name: str) -> str:
            running.make_database(name)
            engine = make_engine(running.url(name))
            upgrade(engine)
            engine.dispose()
            return running.url(name)

        try:
            yield make
        finally:
            running.stop()


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of one such database."""
    with server() as make:
        yield make("voxint")


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
