"""The socket proxy: all that the worker needs goes through, on the real SDK, and nothing else does."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path

import pytest
from docker_engine import SERVICE
from service_worlds import NAMES, DockerWorld, eventually

from voxint.gpu_phase.model import Condition
from voxint.services import socket_proxy
from voxint.services.docker import DockerControl
from voxint.services.socket_proxy import Proxy


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = DockerWorld(tmp_path, monkeypatch)
    with Proxy(("127.0.0.1", 0), made.engine.path, "voxint", NAMES) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        made.host = f"tcp://127.0.0.1:{proxy.server_address[1]}"
        made.port = proxy.server_address[1]
        yield made
        proxy.shutdown()
        thread.join(5)
    made.close()


def ask(world, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    connection.request(method, path, body=body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text


def posts(world):
    return [path for method, path in world.engine.calls if method == "POST"]


def test_the_worker_can_do_all_its_work_through_it(world, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the environment's proxy must not be asked
    control = world.control()
    assert control.unreachable() is None
    assert control.start() == {}
    assert eventually(lambda: all(service.healthy for service in control.health()))
    world.freeze("whisper")
    assert control.start() == {}
    assert eventually(lambda: all(service.healthy for service in control.health()))
    control.stop()
    assert {service.condition for service in control.inspect()} == {Condition.STOPPED}


def test_why_a_container_ended_comes_through(world):
    container = world.container("whisper")
    container.argv = [*container.argv, "--fail", "the card is held by the language model"]
    control = world.control()
    control.start()
    assert eventually(lambda: "card is held" in control.health()[0].detail)


def test_an_engine_that_is_down_is_told_through_it(world):
    world.engine.down()
    control = world.control()
    assert {service.condition for service in control.inspect()} == {Condition.UNKNOWN}
    # The proxy's own words follow, as far as 300 characters go: how far depends on the length of the socket's path.
    assert "502 Server Error" in (control.unreachable() or "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/containers/create"),
        ("POST", "/v1.41/containers/create?name=x"),
        ("POST", "/v1.41/images/create?fromImage=x"),
        ("GET", "/images/json"),
        ("GET", "/info"),
        ("GET", "/secrets"),
        ("GET", "/v1.41/volumes"),
        ("POST", "/build"),
        ("POST", "/swarm/init"),
        ("GET", "/events"),
        ("DELETE", "/containers/{whisper}"),
        ("POST", "/containers/{whisper}/exec"),
        ("POST", "/containers/{whisper}/kill"),
        ("POST", "/containers/{whisper}/update"),
        ("POST", "/containers/{whisper}/rename"),
        ("POST", "/containers/{whisper}/attach"),
        ("PUT", "/containers/{whisper}/archive?path=/"),
        ("GET", "/containers/{whisper}/archive"),
        ("GET", "/containers/{whisper}/export"),
        ("POST", "/containers/voxint-whisper-1/start"),
        ("POST", "/containers/../containers/{whisper}/start"),
        ("POST", "/containers/{whisper}/start/"),
        ("POST", "/containers/{whisper}%2fstart"),
        ("POST", "/v1.41/v1.41/containers/{whisper}/start"),
        ("GET", "http://other/containers/json/../../images/json"),
        ("GET", "/_ping/../images/json"),
    ],
)
def test_nothing_else_passes(world, method, path):
    before = len(world.engine.calls)
    code, answer = ask(world, method, path.format(whisper=world.container("whisper").id))
    assert code in {403, 501}
    if code == 403:
        assert "the socket proxy allows no" in answer["message"]
    assert len(world.engine.calls) == before


@pytest.mark.parametrize("verb", ["start", "stop", "unpause"])
def test_other_containers_are_not_touched(world, verb):
    strangers = [world.add("whisper", "other-whisper-1", project="other"), world.add("postgres"), world.add("api")]
    for stranger in strangers:
        code, answer = ask(world, "POST", f"/containers/{stranger.id}/{verb}")
        assert code == 403, answer
    assert posts(world) == []
    for read in ("json", "logs"):
        assert ask(world, "GET", f"/containers/{strangers[0].id}/{read}")[0] == 403
    assert ask(world, "GET", f"/containers/{'0' * 64}/json")[0] == 404


@pytest.mark.parametrize("verb", ["start", "stop", "unpause"])
def test_a_container_that_cannot_be_looked_at_is_not_touched(world, verb):
    stranger = world.add("whisper", "other-whisper-1", project="other")
    world.engine.answer = (500, b'{"message": "the engine is in trouble"}')
    code, answer = ask(world, "POST", f"/containers/{stranger.id}/{verb}")
    assert (code, answer["message"]) == (500, "the engine is in trouble")
    assert posts(world) == []


def test_a_log_comes_with_its_times_and_as_far_back_as_a_tick_looks(world):
    container = world.container("whisper")
    Path(container.log).write_text("".join(f"line {number}\n" for number in range(2000)))
    lines = world.control().log("whisper", 2000)
    assert (len(lines), lines[0].split(" ", 1)[1]) == (2000, "line 0")
    assert lines[0].startswith("2026-")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"GPU_PHASE_SERVICES": "Whisper!"}, "GPU_PHASE_SERVICES: 'Whisper!' is no service name"),
        ({"SOCKET_PROXY_LISTEN": "::1"}, "SOCKET_PROXY_LISTEN: cannot listen on ::1"),
    ],
)
def test_what_it_cannot_start_with_is_one_line(monkeypatch, capsys, environ, said):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket_proxy, "set_up", lambda **_: None)  # the log of these tests stays what it is
    assert socket_proxy.main() == 1
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_other_projects_are_not_listed_whatever_is_asked_for(world):
    world.add("whisper", "other-whisper-1", project="other")
    for query in ("", "?all=1", "?all=1&filters=%7B%7D", "?filters=%7B%22label%22%3A%5B%5D%7D"):
        code, listed = ask(world, "GET", f"/containers/json{query}")
        assert code == 200
        assert sorted(item["Labels"][SERVICE] for item in listed) == sorted(NAMES)


def test_an_inspection_comes_without_the_environment(world, monkeypatch):
    container = world.container("whisper")
    whole = container.document()
    whole["Config"]["Env"] = ["SECRET_KEY=hush"]
    whole["HostConfig"] = {"Binds": ["/:/host"], "Runtime": "runc"}
    monkeypatch.setattr(container, "document", lambda: whole)
    code, document = ask(world, "GET", f"/v1.41/containers/{container.id}/json")
    assert code == 200
    assert "hush" not in json.dumps(document)
    assert "Binds" not in document["HostConfig"]
    assert document["Config"]["Labels"][SERVICE] == "whisper"


def test_a_body_is_not_passed_on_and_does_not_become_a_request(world):
    smuggled = (
        b'POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n{"HostConfig": {"Privileged": true}}'
    )
    code, _ = ask(world, "POST", f"/containers/{world.container('whisper').id}/start", smuggled)
    assert code == 204
    assert posts(world) == [f"/containers/{world.container('whisper').id}/start"]


def test_a_stop_may_name_its_grace_and_no_more(world):
    container = world.container("whisper")
    container.argv = ["sleep", "30"]
    container.start()
    control = DockerControl(world.settings(), {"DOCKER_HOST": world.host})
    control.stop(only={"whisper"})
    assert container.status() == "exited"
