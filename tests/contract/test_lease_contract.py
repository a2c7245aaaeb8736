"""The broker's contract as Voxint's own client sees it: one suite, over a small fake and the reference broker."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
import uvicorn
from simulated_broker import World
from small_broker import SmallBroker

from voxint.gpu_phase.outcomes import Done, Failed, Free, Granted, Held, Lost, Pending, Refused
from voxint.lease.client import LeaseClient
from voxint.settings import Settings
from voxint_broker.server import make_app
from voxint_broker.simulated import Behaviour

TTL = timedelta(seconds=600)
TOKEN = "a-token-of-the-tests"


def now():
    return datetime.now(UTC)


class Fake:
    """The small broker of the tests."""

    def __init__(self, _folder):
        self.broker = SmallBroker(token=TOKEN)
        self.url = self.broker.url

    def close(self):
        self.broker.close()

    def runs(self):
        with self.broker.lock:
            self.broker._pass_time()
            return self.broker.service_runs


class Reference:
    """The reference broker over loopback, with a made-up card and service."""

    def __init__(self, folder):
        self.world = World(folder, Behaviour(stop_seconds=0.05, linger_seconds=0.02))
        self.world.broker.start()
        self.socket = socket.create_server(("127.0.0.1", 0))
        app = make_app(self.world.broker, token=TOKEN, hosts=frozenset({"127.0.0.1"}))
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.world.until_phase("free")

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()
        self.world.broker.stop(stop_services=True)

    def runs(self):
        return self.world.service.look().condition.value == "running"


@pytest.fixture(params=[Fake, Reference], ids=["fake", "reference"])
def broker(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.close()


def client_of(broker, token=TOKEN):
    base = f"{broker.url}/gpu"
    return LeaseClient(
        Settings(
            gpu_lease_acquire_url=f"{base}/acquire",
            gpu_lease_release_url=f"{base}/release",
            gpu_lease_status_url=f"{base}/status",
            gpu_lease_token=token,
        )
    )


def until(call, seconds=60):
    limit = time.monotonic() + seconds
    while isinstance(outcome := call(), Pending):
        assert time.monotonic() < limit
        time.sleep(0.01)
    return outcome


def granted(client, ttl=TTL):
    outcome = until(lambda: client.acquire(now(), ttl))
    assert isinstance(outcome, Granted), outcome
    return outcome


def test_at_rest_it_is_free_and_the_service_runs(broker):
    assert client_of(broker).status(now()) == Free()
    assert broker.runs()


def test_a_first_acquire_is_pending_and_the_grant_comes_when_the_service_is_gone(broker):
    client = client_of(broker)
    assert client.acquire(now(), TTL) == Pending()
    lease = granted(client)
    assert not broker.runs()
    assert lease.expires_at is not None
    assert timedelta(seconds=590) < lease.expires_at - now() <= TTL


def test_status_names_the_lease(broker):
    client = client_of(broker)
    lease = granted(client)
    status = client.status(now())
    assert isinstance(status, Held)
    assert (status.holder, status.lease_id) == ("voxint", lease.lease_id)


def test_the_same_request_again_is_the_same_lease(broker):
    client = client_of(broker)
    assert granted(client).lease_id == granted(client).lease_id


def test_a_renewal_extends_and_keeps_the_id(broker):
    client = client_of(broker)
    lease = granted(client)
    time.sleep(0.02)
    renewed = client.renew(lease.lease_id, now(), TTL)
    assert isinstance(renewed, Granted)
    assert renewed.lease_id == lease.lease_id
    assert renewed.expires_at > lease.expires_at


def test_an_unknown_renewal_is_lost(broker):
    client = client_of(broker)
    assert isinstance(client.renew("nothing", now(), TTL), Lost)
    granted(client)
    assert isinstance(client.renew("nothing", now(), TTL), Lost)


def test_a_release_is_done_when_the_service_runs_again(broker):
    client = client_of(broker)
    lease = granted(client)
    assert client.release(lease.lease_id) == Pending()
    assert until(lambda: client.release(lease.lease_id)) == Done()
    assert broker.runs()
    assert client.status(now()) == Free()
    assert isinstance(client.renew(lease.lease_id, now(), TTL), Lost)
    assert client.release(lease.lease_id) == Done()


def test_an_unknown_release_changes_nothing(broker):
    client = client_of(broker)
    lease = granted(client)
    assert client.release("nothing") == Done()  # 404: there is no such lease
    status = client.status(now())
    assert isinstance(status, Held)
    assert status.lease_id == lease.lease_id


def test_another_holder_is_refused(broker, monkeypatch):
    client = client_of(broker)
    granted(client)
    monkeypatch.setattr("voxint.lease.client.HOLDER", "another")
    outcome = client.acquire(now(), TTL)
    assert isinstance(outcome, Refused)
    assert outcome.holder == "voxint"


def test_a_lease_that_nobody_renews_ends_and_the_service_comes_back(broker):
    client = client_of(broker)
    lease = until(lambda: client.acquire(now(), timedelta(seconds=1)))
    limit = time.monotonic() + 10
    while not broker.runs():
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert isinstance(client.renew(lease.lease_id, now(), TTL), Lost)


def test_a_wrong_token_is_neither_yes_nor_no(broker):
    client = client_of(broker, token="wrong")
    for outcome in (
        client.acquire(now(), TTL),
        client.renew("x", now(), TTL),
        client.release("x"),
        client.status(now()),
    ):
        assert isinstance(outcome, Failed)
        assert "token" in outcome.reason
    assert broker.runs()
