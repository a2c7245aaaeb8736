"""Real servers for the tests: one PostgreSQL and one Valkey a session, a fresh database and an empty Valkey a test."""

from __future__ import annotations

import contextlib
import os
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis
from shared_database import emptied_database
from started_processes import Processes

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.settings import Settings
from voxint.standalone.postgres import EmbeddedPostgres
from voxint.standalone.valkey import EmbeddedValkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

FOLLOW_UP = "GPU_PHASE_FOLLOW_UP_SECONDS"
if FOLLOW_UP in os.environ:
    # `make test-no-wake-ups`: processes inherit it; settings that a test makes here have it as their default.
    Settings.model_fields[FOLLOW_UP.lower()].default = float(os.environ[FOLLOW_UP])
    Settings.model_rebuild(force=True)

PATIENCE = 6 if FOLLOW_UP in os.environ else 1
"""How much longer than usual a test may wait: each step of a turn waits for the periodic tick then."""

_NUMBERS = count(1)
TEMPLATE = "voxint_template"


SHARED_SERVER = "VOXINT_TEST_POSTGRES"
"""A folder with a server of others, for many short sessions one after another (`make mutants`)."""
OPTIONS = {
    "fsync": "off",  # nothing here has to outlive the machine's power
    "max_connections": "200",
    # Nobody may leave a transaction open while he waits for something else: the server cuts the connection. A busy machine
    # can hold a process up for seconds between two statements, so only a quiet one is asked for less: IDLE_SECONDS=2.
    "idle_in_transaction_session_timeout": f"{os.environ.get('IDLE_SECONDS', '10')}s",
}


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of the session's own, with one migrated database that the others are copied from."""
    shared = os.environ.get(SHARED_SERVER)
    folder = Path(shared) if shared else tmp_path_factory.mktemp("pg")
    # A test that loses its server starts it again.
    server = EmbeddedPostgres(folder / "data", folder / "server.log", options=OPTIONS)
    if shared:  # it runs, and has its template
        yield server
        return
    server.start()
    try:
        make_template(server)
        yield server
    finally:
        server.stop()


def make_template(server: EmbeddedPostgres) -> None:
    """The migrated database that the others are copied from."""
    server.make_database(TEMPLATE)
    engine = make_engine(server.url(TEMPLATE))
    upgrade(engine)
    engine.dispose()


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table."""
    with _database(postgres_server, "template1") as url:
        yield url


@pytest.fixture
def database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A migrated database of this test's own."""
    kept = emptied_database if os.environ.get(SHARED_SERVER) else _database
    with kept(postgres_server, TEMPLATE) as url:
        yield url


@contextlib.contextmanager
def _database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    server.start()  # a test before this one may have killed it
    name = f"test_{os.getpid()}_{next(_NUMBERS)}"
    server.make_database(name, template=template)
    try:
        yield server.url(name)
    finally:
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the test's database."""
    made = make_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """A Valkey of the session's own."""
    folder = tmp_path_factory.mktemp("vk")
    server = EmbeddedValkey(folder / "data", folder / "server.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey_server: EmbeddedValkey) -> str:
    """The address of an empty Valkey."""
    if not valkey_server.answers():  # a test before this one may have killed it
        valkey_server.stop()
        valkey_server.start()
    with contextlib.closing(redis.Redis.from_url(valkey_server.url)) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes, and ends them with the test."""
    made = Processes(tmp_path)
    yield made
    made.end_all()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits for a condition: `eventually(lambda: ..., 90, "what should have happened")`."""

    def wait(condition: Callable[[], object], limit_seconds: float = 60, what: str = "it never happened") -> None:
        # What works needs a tenth of that; what does not work may take its time to say so.
        end = time.monotonic() + max(limit_seconds, 60) * PATIENCE
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.05)

    return wait
