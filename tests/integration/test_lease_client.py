"""The lease client against real sockets: what only a connection can show."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from ports import free_port

from voxint.gpu_phase.outcomes import Done, Failed, Granted, Pending, Refused
from voxint.lease.client import BODY_LIMIT, LeaseClient, reason_of
from voxint.settings import Settings

NOW = datetime(2026, 10, 2, 18, 0, tzinfo=UTC)
TTL = timedelta(seconds=600)


def whole_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part or part[0] == 0x16:  # the beginning of a TLS handshake
            return data + part
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        part = connection.recv(65536)
        body += part
        data += part
    return data


class Peer:
    """A server of raw bytes on loopback; `script(connection)` gets each accepted connection after one request."""

    def __init__(self, script):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.script = script
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, connection):
        with connection:
            try:
                self.requests.append(whole_request(connection))
                self.script(connection)
            except OSError:
                pass

    def close(self):
        # A listener that is only closed would go on accepting in the thread that waits for it.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(5)


@pytest.fixture
def serve():
    peers = []

    def start(script):
        peer = Peer(script)
        peers.append(peer)
        return peer

    yield start
    for peer in peers:
        peer.close()


def answer(status, body=b"{}", extra=""):
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{extra}\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def client(port, *, host="127.0.0.1", seconds=30.0, scheme="http", token=None, user=""):
    """A client that is patient, so that a busy machine changes no answer; what is about the limit says its own."""
    base = f"{scheme}://{user}{host}:{port}/gpu/"
    return LeaseClient(
        Settings(
            gpu_lease_acquire_url=base + "acquire",
            gpu_lease_release_url=base + "release",
            gpu_lease_status_url=base + "status",
            gpu_lease_token=token,
        ),
        call_seconds=seconds,
    )


def drip(head, rest, pause=0.1):
    """Sends the head at once and the rest a byte at a time, for as long as anybody listens."""

    def script(connection):
        connection.sendall(head)
        connection.settimeout(pause)
        for byte in rest:
            connection.sendall(bytes([byte]))
            with contextlib.suppress(TimeoutError):
                if not connection.recv(1):
                    return

    return script


def silent(connection):
    """Says nothing until the other side is gone."""
    connection.settimeout(60)
    connection.recv(1)


LEASE = b'{"lease_id":"b7c1","expires_at":null}'
HEAD = f"HTTP/1.1 200 OK\r\nContent-Length: {len(LEASE)}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "script",
    [drip(HEAD, LEASE, pause=1), drip(b"", HEAD + LEASE, pause=1), silent],
    ids=["body dripped", "headers dripped", "silent"],
)
def test_the_limit_is_for_the_whole_call(serve, script):
    peer = serve(script)
    begun = time.monotonic()
    outcome = client(peer.port, seconds=0.6).acquire(NOW, TTL)
    assert 0.6 <= time.monotonic() - begun < 30  # the whole answer would take 37 s and more
    assert isinstance(outcome, Failed)
    assert "timed out" in outcome.reason


def test_a_release_whose_body_never_ends_is_judged_by_its_code(serve):
    peer = serve(drip(HEAD, LEASE, pause=1))
    assert client(peer.port, seconds=2).release("b7c1") == Done()


def test_a_pending_whose_body_is_cut_is_pending(serve):
    peer = serve(lambda connection: connection.sendall(b"HTTP/1.1 202 A\r\nContent-Length: 900\r\n\r\n{"))
    assert client(peer.port).acquire(NOW, TTL) == Pending()


def test_a_body_without_bound_is_left_at_the_limit(serve):
    sent = []

    def flood(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)
            sent.append(65536)

    peer = serve(flood)
    outcome = client(peer.port, seconds=5).acquire(NOW, TTL)
    assert isinstance(outcome, Failed)
    assert "larger than 64 KiB" in outcome.reason
    time.sleep(0.2)
    assert sum(sent) < 100 * BODY_LIMIT


@pytest.mark.parametrize(("code", "place"), [(302, "http://127.0.0.1:{}/"), (307, "/gpu/acquire"), (301, "")])
def test_no_redirect_is_followed_and_the_token_stays_here(serve, code, place):
    other = serve(answer(200, LEASE))
    peer = serve(answer(code, b"", f"Location: {place.format(other.port)}\r\n"))
    outcome = client(peer.port, token="s3cret-token").acquire(NOW, TTL)
    assert outcome == Failed(f"the broker answered with a redirect ({code}), which is not followed")
    assert other.requests == []
    assert len(peer.requests) == 1


def test_each_cause_has_words_of_its_own(serve):
    free = free_port()
    closing = serve(lambda connection: None)
    plain = serve(answer(200, LEASE))
    reasons = {
        "refused": client(free).acquire(NOW, TTL),
        "name": client(free, host="no-such-host.invalid", seconds=5).acquire(NOW, TTL),
        "tls": client(plain.port, scheme="https").acquire(NOW, TTL),
        "closed": client(closing.port).acquire(NOW, TTL),
    }
    texts = {cause: outcome.reason for cause, outcome in reasons.items()}
    assert len(set(texts.values())) == 4
    assert "connection refused" in texts["refused"]
    assert "does not resolve" in texts["name"]
    assert "TLS" in texts["tls"]
    assert "closed the connection" in texts["closed"]
    assert all(text.startswith("cannot reach the broker at http") for text in texts.values())


@pytest.mark.parametrize(
    "environment",
    [
        {"HTTP_PROXY": "http://127.0.0.1:9"},
        {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "localhost"},
        {"NO_PROXY": "fe80::/10"},
        {"HTTP_PROXY": "socks5://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1"},
    ],
)
def test_the_environments_proxies_do_not_apply(serve, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    peer = serve(answer(200, LEASE))
    assert client(peer.port).acquire(NOW, TTL) == Granted("b7c1", None)


def test_the_token_and_passwords_are_in_no_reason(serve):
    body = b'{"error":"bad token s3cret-token or p%40ss or p@ss' + b"x" * 200 + b'"}'
    peer = serve(answer(500, body))
    lease = client(peer.port, token="s3cret-token", user="bob:p%40ss@")
    outcome = lease.acquire(NOW, TTL)
    shown = repr((outcome, lease))
    assert "bad token ***" in shown
    assert "s3cret" not in shown
    assert "p@ss" not in shown
    assert "p%40ss" not in shown
    peer.close()
    assert "bob" not in repr(lease.acquire(NOW, TTL))


def test_the_token_is_sent_and_a_password_only_without_one(serve):
    peer = serve(answer(200, LEASE))
    client(peer.port, token="s3cret-token", user="bob:pass@").acquire(NOW, TTL)
    client(peer.port, user="bob:pass@").acquire(NOW, TTL)
    client(peer.port).acquire(NOW, TTL)
    assert b"Authorization: Bearer s3cret-token" in peer.requests[0]
    assert b"Authorization: Basic " in peer.requests[1]
    assert b"Authorization" not in peer.requests[2]


def test_what_is_sent_and_that_ids_are_echoed_exactly(serve):
    peer = serve(answer(200, '{"lease_id":"ü-1","expires_at":null}'.encode()))
    lease = client(peer.port)
    granted = lease.acquire(NOW, TTL)
    assert granted == Granted("ü-1", None)
    lease.renew(granted.lease_id, NOW, TTL)
    lease.release("123")
    assert b'{"holder":"voxint","ttl_seconds":600,"lease_id":null}' in peer.requests[0]
    assert '"lease_id":"ü-1"'.encode() in peer.requests[1]
    assert b'{"lease_id":"123"}' in peer.requests[2]


def test_a_clock_that_differs_is_kept_for_the_doctor(serve):
    peer = serve(answer(409, b'{"holder":"x"}', "Date: Fri, 02 Oct 2026 17:00:00 GMT\r\n"))
    lease = client(peer.port)
    assert lease.acquire(NOW, TTL) == Refused("x")
    assert lease.clock_difference == timedelta(hours=-1)


def test_no_thread_is_left_behind(serve):
    peer = serve(drip(b"", HEAD + LEASE, pause=0.05))
    client(peer.port, seconds=0.2).acquire(NOW, TTL)
    calls_are_over()


def test_a_call_that_was_given_up_before_it_was_connected_is_not_made_late(serve, monkeypatch):
    resolved = threading.Event()
    look_up = socket.getaddrinfo

    def slow(*args, **kwargs):
        resolved.wait(60)
        return look_up(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    peer = serve(answer(200, LEASE))
    outcome = client(peer.port, seconds=0.2).acquire(NOW, TTL)
    assert isinstance(outcome, Failed)
    assert "timed out" in outcome.reason
    resolved.set()
    calls_are_over()
    peer.close()
    assert b"".join(peer.requests) == b""


def calls_are_over():
    limit = time.monotonic() + 30
    while any(thread.name == "broker-call" for thread in threading.enumerate()):
        assert time.monotonic() < limit
        time.sleep(0.02)


def _subclasses(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def test_every_error_of_the_library_has_a_place():
    kinds = {httpx.InvalidURL, httpx.StreamError, *_subclasses(httpx.HTTPError), *_subclasses(httpx.StreamError)}
    seen = set()
    for kind in kinds:
        try:
            error = kind("x")
        except TypeError:
            continue
        reason = reason_of(error)
        assert reason
        seen.add(kind)
        if issubclass(kind, httpx.TimeoutException):
            assert "timed out" in reason
    assert len(seen) > 15
    for cause, word in (
        (ConnectionRefusedError(), "refused"),
        (socket.gaierror(), "resolve"),
        (ssl.SSLError(), "TLS"),
        (TimeoutError(), "timed out"),
        (OSError(113, "No route to host"), "no route to host"),
    ):
        error = httpx.ConnectError("x")
        error.__cause__ = cause
        assert word in reason_of(error)
