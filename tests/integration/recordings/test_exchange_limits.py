"""The clients' exchange: a limit on the whole, a bounded body, no redirect, and an end when the claim is lost."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from scripted_services import Raw

from voxint.services.exchange import (
    AbandonedError,
    Ask,
    DroppedError,
    ExchangeError,
    NotListeningError,
    TooLargeError,
    TooSlowError,
    exchange,
)


def ask(url, seconds=5.0, limit=10_000):
    return Ask("GET", url, timedelta(seconds=seconds), limit)


def test_a_dripping_answer_ends_with_the_limit(services):
    services.always["models"] = Raw(200, "x" * 100, drip=0.3)
    begun = time.monotonic()
    with pytest.raises(TooSlowError):
        exchange(ask(services.url + "/v1/models", 0.7))
    assert time.monotonic() - begun < 12


def test_headers_that_drip_end_with_the_limit_too():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100:
                    try:
                        connection.send(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(0.25)

        thread = threading.Thread(target=serve)
        thread.start()
        begun = time.monotonic()
        with pytest.raises(TooSlowError):
            exchange(ask(f"http://127.0.0.1:{listener.getsockname()[1]}/", 0.7))
        assert time.monotonic() - begun < 12
        thread.join(40)


def test_an_answer_that_is_too_large_is_not_kept(services):
    services.always["models"] = Raw(200, b"x" * 50_000)
    with pytest.raises(TooLargeError):
        exchange(ask(services.url + "/v1/models"))


@pytest.mark.parametrize("answer", [Raw(drop=True), Raw(200, b"x" * 100, half=True)])
def test_a_connection_that_ends_early_is_no_answer(services, answer):
    services.always["models"] = answer
    with pytest.raises(DroppedError):
        exchange(ask(services.url + "/v1/models"))


def test_a_redirect_is_not_followed(services):
    services.always["models"] = Raw(302, b"", {"Location": services.url + "/v1/diarize"})
    assert exchange(ask(services.url + "/v1/models")).status == 302
    assert services.asked["pyannote"] == []


def test_a_lost_claim_ends_the_wait(services):
    services.always["models"] = Raw(200, b"{}", wait=60)
    lost = threading.Event()
    threading.Timer(0.3, lost.set).start()
    begun = time.monotonic()
    with pytest.raises(AbandonedError):
        exchange(ask(services.url + "/v1/models", 60), lost)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1:9/", NotListeningError),
        ("http://no-such-host.invalid/", NotListeningError),
        ("ftp://127.0.0.1/", ExchangeError),
        ("http://[/", ExchangeError),
        ("http://127.0.0.1:99999/", ExchangeError),
    ],
)
def test_no_connection_is_told_apart(url, kind):
    with pytest.raises(ExchangeError) as caught:
        exchange(ask(url))
    assert type(caught.value) is kind


def test_a_server_without_tls_is_no_refusal(services):
    with pytest.raises(ExchangeError) as caught:
        exchange(ask(services.url.replace("http:", "https:") + "/v1/models"))
    assert not isinstance(caught.value, NotListeningError)
