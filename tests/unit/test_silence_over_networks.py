"""A server or a worker whose host was switched off says nothing: both sides have a limit for that. `make test-two-hosts` tries it."""

import socket

from voxint.db.session import CONNECTION, GONE_SECONDS
from voxint.settings import load_settings
from voxint.work import app


def test_the_database_is_told_to_give_a_silent_worker_up_and_the_worker_gives_it_up_too():
    server = dict(word.split("=") for word in CONNECTION["options"].split("-c ") if "=" in word)
    for name in ("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"):
        theirs = server[name if name.startswith("tcp") else f"tcp_{name}"]
        assert int(theirs) == CONNECTION[name]
    asked = CONNECTION["keepalives_idle"] + CONNECTION["keepalives_interval"] * CONNECTION["keepalives_count"]
    assert asked <= GONE_SECONDS
    assert CONNECTION["tcp_user_timeout"] == GONE_SECONDS * 1000


def test_a_worker_gives_a_silent_redis_up():
    made = app.make_app(load_settings({"REDIS_URL": "redis://192.0.2.1:6379/0"}), publisher=True)
    options = made.conf.broker_transport_options
    assert options["socket_keepalive"] is True
    given = options["socket_keepalive_options"]
    assert given[socket.TCP_KEEPCNT] == 3
    assert given.get(getattr(socket, "TCP_USER_TIMEOUT", None), 30_000) == app.GONE_SECONDS * 1000
