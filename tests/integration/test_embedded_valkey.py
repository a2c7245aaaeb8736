"""The embedded Valkey's life."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
import redis

from voxint.standalone.valkey import EmbeddedValkey


@pytest.fixture
def server(tmp_path):
    made = EmbeddedValkey(tmp_path / "valkey", tmp_path / "valkey.log")
    yield made
    made.stop()


def client(server):
    return redis.Redis.from_url(server.url)


def test_what_was_written_is_there_after_a_stop_and_after_a_kill(server):
    server.start()
    with client(server) as one:
        one.set("a", "1")
    server.stop()
    assert not server.answers()
    server.start()
    with client(server) as two:
        assert two.get("a") == b"1"
        two.rpush("q", "x")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    server.start()
    with client(server) as three:
        assert three.lrange("q", 0, -1) == [b"x"]


def test_it_has_no_network_port(server):
    server.start()
    with client(server) as one:
        assert one.config_get("port") == {"port": "0"}


def test_a_socket_path_too_long_for_the_kernel(tmp_path):
    server = EmbeddedValkey(tmp_path / ("x" * 120) / "valkey", tmp_path / "valkey.log")
    try:
        server.start()
        assert server.answers()
    finally:
        server.stop()
    server.socket.unlink(missing_ok=True)
    server.socket.parent.rmdir()


def test_a_server_that_was_left_over_is_replaced(server, eventually):
    left = subprocess.Popen(
        EmbeddedValkey(server.data, server.log).argv, cwd=make(server.data), stdout=subprocess.DEVNULL
    )
    try:
        eventually(server.answers, 60, "the server that is left over does not come up")
        server.start()
        assert left.wait(60) == 0
        assert server.answers()
    finally:
        left.kill()
        left.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_it_ends_with_a_starter_that_is_killed(tmp_path, server, eventually):
    script = textwrap.dedent(f"""
        import pathlib, sys, time
        from voxint.standalone.valkey import EmbeddedValkey
        server = EmbeddedValkey(pathlib.Path({str(server.data)!r}), pathlib.Path({str(server.log)!r}))
        server.start()
        print("up", flush=True)
        time.sleep(60)
    """)
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert starter.stdout.readline() == b"up\n"
        assert server.answers()
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
    eventually(lambda: not server.answers(), 5, "the server outlived its starter")


def make(folder):
    folder.mkdir(parents=True)
    return folder
