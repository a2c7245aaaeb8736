"""What every real server does: limits, health, the card, and its end. Shown on the ones that load quickest."""

import io
import json
import signal
import threading
from functools import cache
from pathlib import Path

import av
import httpx
import pytest

pytestmark = [pytest.mark.models, pytest.mark.timeout(400)]
GARDEN = (Path(__file__).parents[3] / "examples" / "speech" / "garden.ogg").read_bytes()


@cache
def long_one():
    """The garden eight times over: seconds of work, of which one must be left when somebody else has come and gone."""
    out = io.BytesIO()
    with av.open(out, "w", format="wav") as made:
        stream = made.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for _ in range(8):
            resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
            with av.open(io.BytesIO(GARDEN)) as garden:
                for frame in garden.decode(audio=0):
                    for each in resampler.resample(frame):
                        each.pts = None
                        made.mux(stream.encode(each))
        made.mux(stream.encode(None))
    return out.getvalue()


def post(server, path="/v1/diarize", data=GARDEN, **fields):
    return server.client.post(path, files={"file": ("a.ogg", data)}, data=fields)


@pytest.mark.parametrize(("first", "second"), [("titanet", "language_model"), ("language_model", "pyannote")])
def test_the_second_side_dies_with_its_reason(start, first, second):
    holder = start(first).ready()
    status, said = start(second).ends()
    assert status == 70
    assert f"{second}: cannot load on the card: {first}" in said
    assert str(holder.popen.pid) in said


def test_health_tells_what_runs(servers):
    health = servers("titanet").client.get("/healthz").json()
    assert health["service"] == "titanet"
    assert health["status"] == "ok"
    assert health["device"] == "cpu"
    assert "GE2E" in health["model"]
    assert health["engine"]["numpy"]
    assert health["started_at"].endswith("+00:00")
    assert servers("titanet").client.get("/health").status_code == 200


def test_sigterm_ends_it_quickly_also_in_mid_request(start):
    server = start("pyannote").ready()
    answers = []

    def ask():
        try:
            answers.append(post(server, data=long_one()).status_code)
        except httpx.TransportError as error:
            answers.append(type(error).__name__)

    caller = threading.Thread(target=ask)
    caller.start()
    assert server.until(lambda: server.ledger()[-1]["event"] == "request_start")
    server.popen.send_signal(signal.SIGTERM)
    assert server.popen.wait(30) == 0, "2 s on an idle machine"
    caller.join(30)
    assert answers
    assert answers[0] != 200
    assert [entry["event"] for entry in server.ledger()][-1] == "end"


def test_beyond_the_queue_it_says_when_to_come_back(start):
    server = start("pyannote", "--queue", "0").ready()
    caller = threading.Thread(target=post, args=(server,), kwargs={"data": long_one()})
    caller.start()
    assert server.until(lambda: server.ledger()[-1]["event"] == "request_start")
    refused = post(server)
    caller.join(90)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert "takes no more" in refused.json()["error"]["message"]
    assert post(server).status_code == 200


def test_a_caller_who_goes_away_is_not_served(start):
    server = start("pyannote").ready()
    busy = threading.Thread(target=post, args=(server,), kwargs={"data": long_one()})
    busy.start()
    assert server.until(lambda: server.ledger()[-1]["event"] == "request_start")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"http://127.0.0.1:{server.port}/v1/diarize",
            files={"file": GARDEN},
            timeout=httpx.Timeout(5, read=0.3),
            trust_env=False,
        )
    busy.join(90)
    assert post(server).status_code == 200
    began = [entry for entry in server.ledger() if entry["event"] == "request_start"]
    assert len(began) == 2, "the one who went away was waiting, and never got a turn"


def test_uploads_are_bounded(start):
    server = start("titanet", "--upload-mib", "1", "--audio-hours", "0.01").ready()
    big = b"\0" * (3 << 20)
    told = server.client.post("/v1/embed", files={"file": big}, data={"windows": "[]"})
    assert told.status_code == 413
    assert "at most 1048576" in told.json()["error"]["message"]
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    streamed = server.client.post(
        "/v1/embed",
        content=(part for part in [head] + [b"\0" * 65536] * 40),
        headers={"content-type": "multipart/form-data; boundary=B"},
    )
    assert streamed.status_code == 413
    too_long = post(server, "/v1/embed", windows="[]")
    assert too_long.status_code == 413
    assert "0.01 hours" in too_long.json()["error"]["message"]


@pytest.mark.parametrize(
    ("data", "fields", "says"),
    [
        (b"<html>not audio</html>" * 100, {}, "cannot be decoded"),
        (b"", {}, "cannot be decoded"),
        (GARDEN, {"min_speakers": "0"}, "min_speakers"),
        (GARDEN, {"min_speakers": "3", "max_speakers": "2"}, "fewer"),
        (GARDEN, {"max_speakers": "many"}, "max_speakers"),
    ],
)
def test_what_cannot_be_served_is_said(servers, data, fields, says):
    answer = post(servers("pyannote"), data=data, **fields)
    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "windows",
    [
        "",
        "nothing",
        "{}",
        "[1]",
        '[{"start": "x", "end": 2}]',
        '[{"start": -1, "end": 2}]',
        '[{"start": NaN, "end": 1}]',
    ],
)
def test_windows_that_are_none_are_refused(servers, windows):
    answer = post(servers("titanet"), "/v1/embed", windows=windows)
    assert answer.status_code == 422
    assert "windows" in answer.json()["error"]["message"]


def test_windows_are_cut_to_the_recording(servers):
    windows = json.dumps([{"start": 900, "end": 990}, {"start": 3, "end": 1}, {"start": 0, "end": 36000}])
    found = post(servers("titanet"), "/v1/embed", windows=windows).json()["embeddings"]
    assert [entry["reason"] for entry in found] == ["too_short", "too_short", None]


@pytest.mark.parametrize("service", ["whisper", "language_model"])
def test_a_gpu_that_is_asked_for_and_not_there_ends_it(start, service):
    status, said = start(service, "--device", "cuda").ends()
    assert status == 1
    assert f"{service}: cannot serve: device cuda was asked for" in said


def test_without_weights_it_says_which_command_to_run(start, tmp_path):
    server = start("whisper", "--path", str(tmp_path / "nothing"))
    assert server.until(lambda: server.client.get("/healthz").json()["status"] == "no_weights")
    health = server.client.get("/healthz")
    assert health.status_code == 503
    assert "voxint models fetch --service whisper" in health.json()["error"]
    assert post(server, "/v1/audio/transcriptions").status_code == 503


def test_a_port_that_is_taken_ends_it(start, servers):
    taken = servers("titanet").port
    status, said = start("titanet", "--port", str(taken)).ends()
    assert status == 1
    assert "address already in use" in said
