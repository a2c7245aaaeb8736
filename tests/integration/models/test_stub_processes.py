import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import psutil
import pytest
from ports import free_port

from voxint_models.card import CardFiles, Side, take
from voxint_models.stub.behaviour import Behaviour, Behaviours
from voxint_models.stub.server import Stub


class Process:
    """A stub as a process, with the calls that the tests make."""

    def __init__(self, folder, service, *options):
        self.port = free_port()
        self.control = folder / f"control-{service}.json"
        environment = os.environ | {
            "CARD_LOCK": str(folder / "card.lock"),
            "CARD_LEDGER": str(folder / "card.ledger"),
            "STUB_CONTROL": str(self.control),
        }
        argv = [sys.executable, "-m", "voxint_models.stub", service, "--port", str(self.port), *options]
        self.popen = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def json(self, method, path, body=None, headers=None):
        status, data = self.call(method, path, body, headers)
        return status, json.loads(data)

    def send_file(self, path, data, **fields):
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
            for k, v in fields.items()
        ]
        parts.append(
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode() + data,
        )
        body = b"".join(parts) + f"\r\n--{boundary}--\r\n".encode()
        return self.json("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return True
            time.sleep(0.01)
        return False

    def ready(self):
        assert self.until(lambda: self.call("GET", "/healthz")[0] == 200)
        return self

    def refuses(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except ConnectionRefusedError:
            return True
        return False

    def ends(self):
        return self.popen.wait(60), self.popen.stderr.read()


@pytest.fixture
def start(tmp_path):
    made = []

    def begin(service, *options):
        made.append(Process(tmp_path, service, *options))
        return made[-1]

    yield begin
    for process in made:
        process.popen.kill()
        process.popen.wait()
        process.popen.stderr.close()


def ledger(tmp_path):
    return [json.loads(line) for line in (tmp_path / "card.ledger").read_text().splitlines()]


def test_each_service_answers_in_its_form(start, tmp_path):
    whisper, pyannote, titanet = (start(name).ready() for name in ("whisper", "pyannote", "titanet"))
    data = b"\x01\x02" * 160_000
    status, text = whisper.send_file("/v1/audio/transcriptions", data, language="en")
    assert status == 200
    assert text["segments"]
    assert text["text"] != whisper.send_file("/v1/audio/transcriptions", data + b"\x03")[1]["text"]
    status, turns = pyannote.send_file("/v1/diarize", data, min_speakers="2", max_speakers="2")
    assert {turn["speaker"] for turn in turns["turns"]} == {"SPEAKER_00", "SPEAKER_01"}
    windows = json.dumps([{"start": 0, "end": 3}])
    status, vectors = titanet.send_file("/v1/embed", data, windows=windows)
    assert len(vectors["embeddings"][0]["embedding"]) == vectors["dimension"]
    health = titanet.json("GET", "/healthz")[1]
    assert (health["status"], health["service"], health["device"]) == ("ok", "titanet", "cpu")
    wanted = {("whisper", "transcribe"), ("pyannote", "diarize"), ("titanet", "embed")}

    def ended():  # the line is written after the answer
        return {(entry["service"], entry["request"]) for entry in ledger(tmp_path) if entry["event"] == "request_end"}

    assert titanet.until(lambda: ended() == wanted), ended()


def test_the_language_model_loads_and_then_answers(start):
    model = start("language_model", "--start-seconds", "600")
    assert model.until(lambda: model.call("GET", "/v1/models")[0] == 200)
    assert model.json("GET", "/v1/models")[1]["data"][0]["meta"] is None
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1})
    assert model.json("POST", "/v1/chat/completions", body)[0] == 503
    assert model.json("GET", "/healthz")[0] == 503
    model.control.write_text('{"start_seconds": 0}')
    model.ready()
    status, answer = model.json("POST", "/v1/chat/completions", body)
    assert status == 200
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("first", "second"), [("language_model", "whisper"), ("titanet", "language_model")])
def test_the_second_side_dies_with_its_reason(start, tmp_path, first, second):
    holder = start(first).ready()
    status, reason = start(second).ends()
    assert status == 70
    assert f"{second}: cannot load on the card: {first} (" in reason
    assert f"pid {holder.popen.pid}" in reason
    assert reason.count("\n") == 1
    holder.popen.send_signal(signal.SIGTERM)
    assert holder.popen.wait(60) == 0
    assert [entry["event"] for entry in ledger(tmp_path)] == ["start", "end"]
    start(second).ready()


def test_a_killed_process_gives_the_card_back(start):
    holder = start("language_model").ready()
    holder.popen.kill()
    holder.popen.wait()
    start("whisper").ready()


def test_it_keeps_the_card_until_it_is_gone(start):
    holder = start("whisper", "--stop-seconds", "600").ready()
    holder.popen.send_signal(signal.SIGTERM)
    assert holder.until(holder.refuses)
    assert start("language_model").ends()[0] == 70
    holder.control.write_text('{"stop_seconds": 0}')
    assert holder.popen.wait(60) == 0
    start("language_model").ready()


def test_starting_is_quick(start):
    stub = start("whisper").ready()
    spent = psutil.Process(stub.popen.pid).cpu_times()
    assert spent.user + spent.system < 2, "0.2 s of a processor, however busy the machine is"


def test_failures_as_told(start):
    stub = start("whisper").ready()

    def told(**switches):
        stub.control.write_text(json.dumps(switches))
        return stub

    path, data = "/v1/audio/transcriptions", b"\x01" * 1000
    assert told(status=503, retry_after=7).send_file(path, data)[0] == 503
    assert stub.json("GET", "/healthz")[0] == 200
    assert told(health_status=500).json("GET", "/healthz")[0] == 500
    with pytest.raises(http.client.RemoteDisconnected):
        told(drop=True).send_file(path, data)
    with pytest.raises(http.client.IncompleteRead):
        told(half=True).send_file(path, data)
    assert told(refuse=True).until(stub.refuses)
    told().ready()
    assert stub.send_file(path, data)[0] == 200
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        told(die_after=0).send_file(path, data)
    assert stub.popen.wait(60) == 1


def test_refusing_after_some_calls_and_ignoring_the_term(start):
    stub = start("titanet", "--refuse-after", "1", "--ignore-term").ready()
    assert stub.send_file("/v1/embed", b"\x01" * 1000, windows="[]")[0] == 200
    assert stub.until(stub.refuses)
    stub.popen.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        stub.popen.wait(0.5)


def test_a_start_that_fails(start):
    assert start("pyannote", "--start-seconds", "0.1", "--start-fails").ends()[0] == 1


@pytest.mark.parametrize("start_fails", [True, False])
def test_a_model_whose_start_fails_is_never_ready(start_fails, tmp_path):
    behaviours = Behaviours("pyannote", Behaviour(start_fails=start_fails), None)
    card = take(CardFiles(None, tmp_path / "ledger"), Side.AUDIO, "pyannote")
    try:
        stub = Stub("pyannote", behaviours, card)
        assert stub.loaded_by_now()
        assert stub.ready() is not start_fails
    finally:
        card.leave()


def test_a_call_that_is_cut_off_by_the_stop_gets_no_answer(start, tmp_path):
    stub = start("whisper", "--answer-seconds", "30").ready()
    connection = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/audio/transcriptions", b"x", {})
        assert stub.until(lambda: ledger(tmp_path)[-1]["event"] == "request_start")
        stub.popen.send_signal(signal.SIGTERM)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            connection.getresponse()
    assert stub.popen.wait(60) == 0
    assert [entry["event"] for entry in ledger(tmp_path)] == ["start", "request_start", "request_end", "end"]


def test_a_call_and_a_stop_that_take_long_end_when_told_to_take_less(start, tmp_path):
    whisper = start("whisper", "--answer-seconds", "600", "--stop-seconds", "600").ready()
    answers = []
    call = threading.Thread(
        target=lambda: answers.append(whisper.send_file("/v1/audio/transcriptions", b"\x01\x02" * 16_000))
    )
    call.start()
    assert whisper.until(lambda: any(entry["event"] == "request_start" for entry in ledger(tmp_path)))
    assert call.is_alive()
    whisper.control.write_text('{"answer_seconds": 0}')
    call.join(60)
    assert [status for status, _ in answers] == [200]
    whisper.popen.send_signal(signal.SIGTERM)
    assert whisper.until(whisper.refuses)
    assert whisper.popen.poll() is None
    whisper.control.write_text('{"answer_seconds": 0, "stop_seconds": 0}')
    assert whisper.ends() == (0, "")


STOPPED_IN_A_WAIT = """
import signal, sys, threading

wait, sent = threading.Condition.wait, []

def interrupted(self, timeout=None):
    ours = threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGTERM))
    if ours and not sent:
        sent.append(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    return wait(self, timeout)

threading.Condition.wait = interrupted
from voxint_models.stub.__main__ import main
sys.exit(main())
"""


def test_a_stop_in_the_middle_of_a_wait_ends_it_all_the_same(tmp_path):
    """The main thread holds its wait's lock then: a handler that asked for the same one would wait for ever."""
    environment = os.environ | {"CARD_LEDGER": str(tmp_path / "card.ledger")}
    argv = [sys.executable, "-c", STOPPED_IN_A_WAIT, "whisper", "--port", str(free_port())]
    assert subprocess.run(argv, env=environment, timeout=30, check=False).returncode == 0
    assert [entry["event"] for entry in ledger(tmp_path)] == ["start", "end"]
