"""The embedded PostgreSQL's life: what a kill -9, a stranger's pid, an odd path and a second start leave standing."""

import os
import signal
import stat
import subprocess

import psycopg
import pytest

from voxint.standalone.postgres import BINARIES_VARIABLE, EmbeddedPostgres, PostgresError, find_binaries


@pytest.fixture
def server(tmp_path):
    made = EmbeddedPostgres(tmp_path / "home" / "postgres", tmp_path / "server.log")
    yield made
    made.stop()


def rows(server):
    with psycopg.connect(server.url()) as connection:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]


def fill(server):
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE t (i int)")
        connection.execute("INSERT INTO t SELECT generate_series(1, 1000)")


def test_start_stop_start_keeps_the_data_and_opens_no_network(server):
    server.start()
    fill(server)
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone()[0] == ""
    server.stop()
    assert not server.answers()
    assert server.processes() == []
    server.start()
    assert rows(server) == 1000


def test_the_folder_is_its_owners_alone_and_its_parents_are_left_as_they_were(tmp_path, server):
    parent = tmp_path / "home"
    parent.mkdir(mode=0o700)
    server.start()
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700


def test_a_killed_server_comes_back_with_what_was_committed(server):
    server.start()
    fill(server)
    open_transaction = psycopg.connect(server.url())
    open_transaction.execute("INSERT INTO t SELECT generate_series(1, 5)")
    os.kill(server.running(), signal.SIGKILL)
    server.start()
    open_transaction.close()
    assert rows(server) == 1000


def test_a_pid_file_that_names_a_strangers_process_does_not_stop_the_start(server):
    server.start()
    fill(server)
    os.kill(server.running(), signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            path = (server.data if name == "postmaster.pid" else server.sockets) / name
            lines = path.read_text().splitlines()
            path.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        server.start()
        assert rows(server) == 1000
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_starter_adopts_the_server_that_runs(tmp_path, server):
    server.start()
    fill(server)
    pid = server.running()
    second = EmbeddedPostgres(server.data, tmp_path / "second.log")
    second.start()
    assert second.running() == pid
    assert second.url() == server.url()
    assert rows(second) == 1000
    second.stop()
    assert server.processes() == []


@pytest.mark.parametrize("name", ["a b'c,d$e", "x" * 120, "ünï"])
def test_a_path_that_a_socket_or_a_shell_would_stumble_over(tmp_path, name):
    server = EmbeddedPostgres(tmp_path / name / "postgres", tmp_path / "server.log")
    try:
        server.start()
        assert server.answers()
        assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
    finally:
        server.stop()
    if server.sockets != server.data:
        server.sockets.rmdir()


def test_a_first_start_that_was_cut_is_done_again(server):
    making = server.data.with_name("postgres.new")
    making.mkdir(parents=True)
    (making / "PG_VERSION").write_text("18\n")
    server.data.mkdir()
    server.start()
    assert server.answers()


def test_a_start_that_fails_says_what_the_server_said(tmp_path):
    server = EmbeddedPostgres(tmp_path / "postgres", tmp_path / "server.log", options={"max_connections": "none"})
    with pytest.raises(PostgresError, match="max_connections"):
        server.start()
    assert server.processes() == []


def test_two_servers_of_one_process_are_told_apart(tmp_path, server):
    server.start()
    other = EmbeddedPostgres(tmp_path / "other", tmp_path / "other.log")
    try:
        other.start()
        assert not set(server.processes()) & set(other.processes())
    finally:
        other.stop()
    assert server.answers()


def test_a_folder_without_programs_is_refused(tmp_path):
    with pytest.raises(PostgresError, match=BINARIES_VARIABLE):
        find_binaries({BINARIES_VARIABLE: str(tmp_path)})
