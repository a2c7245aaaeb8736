"""Health over real sockets: each way in which a service does not answer has words of its own."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest
from answering import never_accepting

from voxint.gpu_phase.model import Condition, ServiceSeen
from voxint.services.health import Answer, probe, probe_all, with_health
from voxint.settings import ServiceSettings


class Server:
    """Accepts connections on loopback and does with each what it is told; `script` gets the connection."""

    def __init__(self, script):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.script = script
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/healthz"

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    self.request = connection.recv(4096)
                    self.script(self, connection)
                except OSError:
                    pass

    def close(self):
        self.over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


@pytest.fixture
def serve():
    servers = []

    def start(script):
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def says(head, body=b"", content_type="application/json"):
    def script(_server, connection):
        lines = f"HTTP/1.1 {head}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(lines.encode() + body)

    return script


def drip(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
    while not server.over.wait(0.05):
        connection.sendall(b" ")


def drip_head(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not server.over.wait(0.05):
        connection.sendall(b"x")


def stall(server, _connection):
    server.over.wait(10)


@pytest.mark.parametrize(
    ("script", "answer", "words"),
    [
        (says("200 OK", b'{"status": "ok", "device": "cuda"}'), Answer.READY, "answers"),
        (says("200 OK", b"fine", "text/plain"), Answer.READY, "without JSON"),
        (says("200 OK", b""), Answer.READY, "without JSON"),
        (says("200 OK", b'{"status": "loading"}'), Answer.NOT_READY, "status is 'loading'"),
        (says("200 OK", b'{"status": "o'), Answer.MALFORMED, "cannot be read"),
        (says("200 OK", b"<html>hello</html>", "text/html; charset=utf-8"), Answer.MALFORMED, "a web page"),
        (says("200 OK", b"<!doctype html>", "text/plain"), Answer.MALFORMED, "a web page"),
        (says("200 OK", b"x" * 70_000, "text/plain"), Answer.MALFORMED, "more than 64 KiB"),
        (
            says("503 Service Unavailable", b'{"status": "loading"}'),
            Answer.STATUS,
            "answers 503 Service Unavailable: status",
        ),
        (says("401 Unauthorized", b"", "text/plain"), Answer.STATUS, "answers 401 Unauthorized"),
        (
            says("307 Temporary Redirect\r\nLocation: http://127.0.0.1/"),
            Answer.STATUS,
            "a redirect to http://127.0.0.1/",
        ),
        (lambda _s, connection: connection.sendall(b"220 smtp ready\r\n\r\n"), Answer.MALFORMED, "malformed reply"),
        (lambda _s, _c: None, Answer.MALFORMED, "malformed reply"),
        (drip, Answer.STALLED, "no whole answer"),
        (drip_head, Answer.STALLED, "no whole answer"),
        (stall, Answer.STALLED, "no whole answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_answer_has_its_name(serve, script, answer, words):
    server = serve(script)
    begun = time.monotonic()
    health = probe(server.url, 0.5 if answer is Answer.STALLED else 20)
    assert health.answer is answer, health
    assert words in health.detail
    assert health.ready == (answer is Answer.READY)
    assert not health.looks_stopped
    assert time.monotonic() - begun < 19  # what never ends is not waited for as long as an answer may take


def test_the_reported_device_is_kept(serve):
    assert probe(serve(says("200 OK", b'{"status": "ok", "device": "cuda"}')).url).device == "cuda"


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        health = probe(f"http://127.0.0.1:{taken.getsockname()[1]}/healthz")
    assert (health.answer, health.detail) == (Answer.REFUSED, "connection refused")
    assert health.looks_stopped


def test_a_name_that_does_not_resolve(monkeypatch):
    def unknown(*_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    health = probe("http://whisper:8000/healthz")
    assert health.answer is Answer.NO_NAME
    assert health.looks_stopped


def test_a_connect_that_is_never_accepted_is_no_stopped_service():
    with never_accepting() as url:
        health = probe(f"{url}/healthz", 0.4)
    assert health.answer is Answer.CONNECT_TIMED_OUT
    assert not health.looks_stopped


def test_tls_that_fails(serve):
    server = serve(lambda _s, connection: connection.sendall(b"plain text, no handshake\r\n"))
    health = probe(server.url.replace("http:", "https:"))
    assert health.answer is Answer.TLS
    assert isinstance(ssl.SSLError(), OSError)


@pytest.mark.parametrize("url", ["http://127.0.0.1:70000/", "ftp://127.0.0.1/", "http://[::1/", "nonsense"])
def test_an_address_that_cannot_be_used(url):
    assert probe(url).answer is Answer.BAD_URL


def test_the_environments_proxy_is_not_asked(serve, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "fe80::/10")
    assert probe(serve(says("200 OK", b"{}")).url).ready


def test_all_are_asked_at_the_same_time(serve):
    """Each answers when all have been asked: one after another, the first would never have an answer."""
    together = threading.Barrier(5, timeout=60)

    def waits_for_the_others(server, connection):
        together.wait()
        says("200 OK", b"{}")(server, connection)

    answers = probe_all({f"service-{number}": serve(waits_for_the_others).url for number in range(5)}, 20)
    assert {health.answer for health in answers.values()} == {Answer.READY}


def test_what_does_not_run_is_not_asked(serve):
    server = serve(says("200 OK", b"{}"))
    service = ServiceSettings("whisper", server.url.removesuffix("/healthz"), "/healthz", ())
    for condition, healthy in [(Condition.STOPPED, False), (Condition.UNKNOWN, False), (Condition.RUNNING, True)]:
        (seen,) = with_health([ServiceSeen("whisper", condition, healthy=True)], {"whisper": service})
        assert seen.healthy is healthy
