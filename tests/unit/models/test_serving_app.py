import asyncio
import threading
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from voxint_models.card import CardFiles, Side, take
from voxint_models.serving.app import build
from voxint_models.serving.errors import CancelledError, CannotServeError, WeightsMissingError
from voxint_models.serving.options import Options, read
from voxint_models.serving.service import Service

OPTIONS = Options("127.0.0.1", 1, "tiny", "cpu", None, 1, 2, 1000, 60)


class Tiny:
    """An engine that holds its weights on a device of its own, as a tensor would."""

    model = "tiny-1"

    def __init__(self):
        self.weights = SimpleNamespace(device="cpu")
        self.warmed = 0

    def device(self):
        return self.weights.device

    def versions(self):
        return {"tiny": "1"}

    def warm_up(self):
        self.warmed += 1


def service(load=lambda options: Tiny(), options=OPTIONS):
    return Service("tiny", options, load, take(CardFiles(), Side.AUDIO, "tiny"))


def client(one, work=lambda engine, cancel: 1):
    router = APIRouter()

    @router.post("/call")
    async def call(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse({"size": len(body), "found": await one.infer(request, "call", work)})

    return TestClient(build(one, router), raise_server_exceptions=False)


def test_it_is_ready_once_the_model_is_loaded_and_has_been_tried():
    one = service()
    web = client(one)
    assert (web.get("/healthz").status_code, web.get("/healthz").json()["status"]) == (503, "loading")
    refused = web.post("/call")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "2"
    assert "loading" in refused.json()["error"]["message"]
    one.load()
    assert one.engine.warmed == 1
    health = web.get("/healthz").json()
    assert health == {
        "status": "ok",
        "service": "tiny",
        "started_at": one.started_at,
        "model": "tiny-1",
        "device": "cpu",
        "engine": {"tiny": "1"},
    }
    assert web.post("/call").json() == {"size": 0, "found": 1}


def test_the_device_is_read_back_from_the_model():
    one = service()
    one.load()
    one.engine.weights.device = "cuda:1"
    assert client(one).get("/healthz").json()["device"] == "cuda:1"


def test_without_weights_it_stays_and_says_so():
    def load(options):
        raise WeightsMissingError("no weights: run the command")

    one = service(load)
    one.load()
    answer = client(one).get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["error"] == "no weights: run the command"
    assert answer.json()["status"] == "no_weights"


def test_a_warm_up_that_fails_is_a_model_that_did_not_load():
    class Broken(Tiny):
        def warm_up(self):
            raise CannotServeError("the network gives nothing")

    one = service(lambda options: Broken())
    with pytest.raises(CannotServeError):
        one.load()
    assert client(one).get("/healthz").status_code == 503


def test_what_nobody_foresaw_tells_its_kind_and_no_more():
    def work(engine, cancel):
        raise KeyError("a secret path")

    one = service()
    one.load()
    answer = client(one, work).post("/call")
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "unexpected KeyError"
    assert client(one).get("/nothing").status_code == 404


@pytest.mark.parametrize("size", [999, 1000, 1001, 5000])
def test_the_body_is_bounded_with_and_without_a_length(size):
    one = service()
    one.load()
    web = client(one)
    status = 200 if size <= 1000 else 413
    assert web.post("/call", content=b"x" * size).status_code == status
    assert web.post("/call", content=(b"x" for _ in range(size))).status_code == status


def gone(after):
    """A request whose caller is there for so many looks."""
    looks = iter([False] * after)

    async def is_disconnected():
        return next(looks, True)

    return SimpleNamespace(is_disconnected=is_disconnected)


def test_one_at_a_time_a_bounded_queue_and_giving_up():
    one = service()
    one.load()
    inside, most, go = 0, 0, threading.Event()
    lock = threading.Lock()

    def work(engine, cancel):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        go.wait(10)
        with lock:
            inside -= 1
        return "done"

    async def play():
        stays = [asyncio.create_task(one.infer(gone(10_000), "call", work)) for _ in range(2)]
        leaves = asyncio.create_task(one.infer(gone(0), "call", work))
        await asyncio.sleep(0.05)
        with pytest.raises(Exception, match="2 requests waiting"):
            await one.infer(gone(10_000), "call", work)
        go.set()
        assert await asyncio.gather(*stays) == ["done", "done"]
        with pytest.raises(CancelledError):
            await leaves

    asyncio.run(play())
    assert most == 1


def test_at_the_end_of_the_server_every_inference_is_given_up():
    one = service()
    one.load()
    begun = threading.Event()

    def work(engine, cancel):
        begun.set()
        while True:
            cancel.check()

    async def play():
        task = asyncio.create_task(one.infer(gone(10_000), "call", work))
        await asyncio.to_thread(begun.wait, 10)
        one.give_up()
        with pytest.raises(CancelledError):
            await task

    asyncio.run(play())


def test_options_come_from_the_line_then_from_the_environment():
    environ = {"MODEL_THREADS": "7", "MODEL_UPLOAD_MIB": "3", "MODEL_PATH": "/weights"}
    found = read("tiny", ("a", "b"), ["--port", "5", "--threads", "2", "--engine", "b"], environ)
    assert (found.port, found.threads, found.engine, found.model) == (5, 2, "b", "/weights")
    assert found.upload_bytes == 3 << 20
    assert (found.device, found.host) == ("cpu", "127.0.0.1")


@pytest.mark.parametrize(
    ("argv", "environ", "engine"),
    [
        ([], {}, "offline"),
        (["--device", "cuda"], {}, "big"),
        ([], {"MODEL_DEVICE": "cuda:1", "MODEL_ENGINE": ""}, "big"),
        (["--device", "cuda"], {"MODEL_ENGINE": "offline"}, "offline"),
        (["--engine", "big"], {}, "big"),
    ],
)
def test_a_gpu_is_for_the_engine_that_can_use_one(argv, environ, engine):
    assert read("tiny", ("offline", "big"), ["--port", "5", *argv], environ).engine == engine


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        ([], {}),
        (["--port", "5", "--engine", "c"], {}),
        (["--port", "5"], {"MODEL_ENGINE": "c"}),
        (["--port", "5"], {"MODEL_THREADS": "many"}),
    ],
)
def test_a_wrong_line_is_wrong_usage(argv, environ, capsys):
    with pytest.raises(SystemExit) as caught:
        read("tiny", ("a", "b"), argv, environ)
    assert caught.value.code == 2
    assert capsys.readouterr().err
