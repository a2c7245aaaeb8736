"""The broker's door: who may ask, how much may be sent, and what is answered to what is no call of the contract."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

import pytest
import uvicorn
from simulated_broker import World

from voxint_broker.server import BODY_LIMIT, make_app

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("broker"))
    world.broker.start()
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(world.broker, token=TOKEN, hosts=frozenset({"127.0.0.1", "::1", "gpu-box.lan"}))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    world.until_phase("free")
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(20)
    listener.close()
    world.broker.stop(stop_services=True)


def call(port, method, path, body=None, *, token=TOKEN, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def code_of(answer):
    return json.loads(answer[1])["code"]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1]])
@pytest.mark.parametrize("path", ["/gpu/status", "/metrics", "/openapi.json", "/nothing"])
def test_without_the_token_nothing_is_told(door, token, path):
    answer = call(door, "GET", path, token=token)
    assert answer[0] == 401
    assert code_of(answer) == "unauthorized"
    assert answer[2]["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_whether_it_lives_anybody_may_ask(door, path):
    assert call(door, "GET", path, token=None)[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1:9100", "gpu-box.lan", "GPU-BOX.LAN:9100", "[::1]:9100", "[::1]"])
def test_known_hosts(door, host):
    assert call(door, "GET", "/gpu/status", Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9100", "127.0.0.1.evil.example", ""])
def test_other_hosts_are_turned_away(door, host):
    answer = call(door, "GET", "/gpu/status", Host=host)
    assert answer[0] == 421
    assert code_of(answer) == "unknown_host"


def acquire(door, body):
    return call(door, "POST", "/gpu/acquire", body, Content_Type="application/json")


GOOD = {"holder": "voxint", "ttl_seconds": 600, "lease_id": None}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 30_000,
        json.dumps({**GOOD, "holder": ""}).encode(),
        json.dumps({**GOOD, "holder": "a\nb"}).encode(),
        json.dumps({**GOOD, "holder": "x" * 201}).encode(),
        json.dumps({**GOOD, "holder": 7}).encode(),
        json.dumps({**GOOD, "ttl_seconds": 0}).encode(),
        json.dumps({**GOOD, "ttl_seconds": -1}).encode(),
        json.dumps({**GOOD, "ttl_seconds": "600"}).encode(),
        json.dumps({**GOOD, "ttl_seconds": True}).encode(),
        b'{"holder": "voxint", "ttl_seconds": NaN, "lease_id": null}',
        b'{"holder": "voxint", "ttl_seconds": 1e400, "lease_id": null}',
        json.dumps({**GOOD, "lease_id": ""}).encode(),
        json.dumps({**GOOD, "lease_id": 7}).encode(),
        json.dumps({**GOOD, "lease_id": "x" * 1025}).encode(),
        json.dumps({"holder": "voxint"}).encode(),
    ],
)
def test_what_is_no_acquire_changes_nothing(door, body):
    answer = acquire(door, body)
    assert answer[0] in {400, 422}
    assert code_of(answer) == "bad_request"
    assert json.loads(call(door, "GET", "/gpu/status")[1])["phase"] == "free"


def test_a_body_is_bounded(door):
    answer = acquire(door, b"x" * (BODY_LIMIT + 1))
    assert (answer[0], code_of(answer)) == (413, "too_large")
    with socket.create_connection(("127.0.0.1", door), timeout=20) as raw:
        head = f"POST /gpu/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        raw.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        for _ in range(6):
            raw.sendall(piece)
        assert b" 413 " in raw.recv(4096)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "no_such_path"), ("GET", "/gpu/acquire", 405, "no_such_method"),
     ("POST", "/gpu/status", 405, "no_such_method"), ("DELETE", "/gpu/release", 405, "no_such_method")],
)  # fmt: skip
def test_other_calls_have_stable_codes(door, method, path, status, code):
    answer = call(door, method, path)
    assert (answer[0], code_of(answer)) == (status, code)


def test_a_whole_turn_counts(door):
    def until(wanted, send):
        limit = time.monotonic() + 30
        while (answer := send())[0] != wanted:
            assert answer[0] == 202, answer
            assert time.monotonic() < limit
            time.sleep(0.01)
        return json.loads(answer[1])

    lease = until(200, lambda: acquire(door, json.dumps(GOOD)))["lease_id"]
    until(
        200,
        lambda: call(door, "POST", "/gpu/release", json.dumps({"lease_id": lease}), Content_Type="application/json"),
    )
    text = call(door, "GET", "/metrics")[1].decode()
    assert 'voxint_broker_phase{phase="free"} 1' in text
    assert 'voxint_broker_answers_total{call="acquire",code="200"} 1' in text
    assert 'voxint_broker_phase_seconds_count{phase="held"} 1' in text
    assert 'voxint_broker_service_runs{service="simulated"} 1' in text
    assert "voxint_broker_foreign_processes 0" in text
    assert TOKEN not in text


def test_the_calls_are_described(door):
    document = json.loads(call(door, "GET", "/openapi.json")[1])
    assert {"/gpu/acquire", "/gpu/release", "/gpu/status"} <= set(document["paths"])
    assert set(document["paths"]["/gpu/acquire"]["post"]["responses"]) >= {"200", "202", "404", "409", "500", "401"}
    assert document["paths"]["/gpu/status"]["get"]["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
