"""The servers, and two hosts that reach them over a wire each. Where there can be none, the tests are skipped with the reason."""

from __future__ import annotations

import time

import pytest
import redis
from host_network import (
    DATABASE_URL,
    HBA,
    POSTGRES_ON_THE_WIRE,
    REDIS_URL,
    CannotError,
    ValkeyOnTheWire,
    host,
    leave_the_network,
)
from started_processes import Processes
from work_bench import work_bench

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.standalone.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def own_network():
    try:
        leave_the_network()
        with host("probe", 9):
            pass
    except CannotError as error:
        pytest.skip(f"two hosts cannot be tried on this machine: {error}")


@pytest.fixture(scope="session")
def servers(own_network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    hba = folder / "hba.conf"
    hba.write_text(HBA, "utf-8")
    folder.chmod(0o755)
    postgres = EmbeddedPostgres(folder / "pg", folder / "pg.log", options=POSTGRES_ON_THE_WIRE | {"hba_file": str(hba)})
    valkey = ValkeyOnTheWire(folder / "vk", folder / "vk.log")
    try:
        postgres.start()
        valkey.start()
        yield postgres
    finally:
        valkey.stop()
        postgres.stop()


@pytest.fixture
def database(servers):
    """An empty Voxint."""
    admin = make_engine(servers.url(), pool_size=1).execution_options(isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS voxint WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE voxint")
    admin.dispose()
    engine = make_engine(DATABASE_URL)
    upgrade(engine)
    engine.dispose()
    with redis.Redis.from_url(REDIS_URL) as client:
        client.flushall()
    return DATABASE_URL


@pytest.fixture
def hosts(own_network):
    with host("one", 1) as one, host("two", 2) as two:
        yield one, two


@pytest.fixture
def processes(tmp_path, hosts):
    """Ends what a test started before its hosts go."""
    made = Processes(tmp_path)
    yield made
    made.end_all()


@pytest.fixture
def bench(processes, database, tmp_path):
    with work_bench(processes, database, REDIS_URL, tmp_path) as made:
        yield made


@pytest.fixture
def eventually():
    def wait(condition, limit_seconds, what):
        end = time.monotonic() + limit_seconds
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.1)

    return wait
