"""The stand-in's HTTP server: listens, answers, misbehaves as told, and leaves the card as the real ones do."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from voxint_models import clock
from voxint_models.card import Card, Side, take_or_exit
from voxint_models.stub import answers, form
from voxint_models.stub.behaviour import HEALTH_PATHS, Behaviour, Behaviours

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 0.02
_LAST_CALL_SECONDS = 0.5  # for the line that says that a call which was cut off is over
_BODY_LIMIT = 1 << 30
CALLS = {
    "whisper": {"/v1/audio/transcriptions": "transcribe"},
    "pyannote": {"/v1/diarize": "diarize"},
    "titanet": {"/v1/embed": "embed"},
    "language_model": {"/v1/chat/completions": "chat"},
}


class Stub:
    """One stand-in: what it is, how it behaves, and how far it is."""

    def __init__(self, service: str, behaviours: Behaviours, card: Card) -> None:
        self.service = service
        self.model = f"stub-{service}"
        self.behaviours = behaviours
        self.card = card
        self.stopping = threading.Event()
        self.busy = threading.Lock()
        self.started_at = clock.stamp()
        self._born = time.monotonic()
        self._calls = 0
        self._counting = threading.Lock()

    def ready(self) -> bool:
        """Whether the model is loaded by now. One whose start fails never is: it must not answer between the two."""
        return self.loaded_by_now() and not self.behaviours.at().start_fails

    def loaded_by_now(self) -> bool:
        """Whether the time that a start takes has passed."""
        return time.monotonic() - self._born >= self.behaviours.at().start_seconds

    def wants_to_refuse(self) -> bool:
        """Whether nobody should listen at this moment."""
        now = self.behaviours.at()
        return now.refuse or (now.refuse_after is not None and self._calls >= now.refuse_after)

    def count(self) -> int:
        """Count a call; gives how many came before it."""
        with self._counting:
            self._calls += 1
            return self._calls - 1

    def takes_its_time(self, path: str) -> bool:
        """Wait as long as a call takes; told to take less in the meantime, it ends. Whether the stub ends before that."""
        began = time.monotonic()
        while time.monotonic() - began < self.behaviours.at(path).answer_seconds:
            if self.stopping.wait(_LOOK_SECONDS):
                return True
        return False

    def health(self) -> dict[str, Any]:
        """The body of /healthz."""
        return {
            "status": "ok",
            "service": self.service,
            "model": self.model,
            "device": self.behaviours.at().device,
            "engine": {"stub": "1"},
            "started_at": self.started_at,
        }


class Handler(BaseHTTPRequestHandler):
    """One connection. HTTP/1.0 closes after each answer, so a stopped stub leaves no idle connection behind."""

    server: _Server

    def do_GET(self) -> None:
        """Health, and the list of models."""
        stub, path = self.server.stub, self.path.partition("?")[0]
        now = stub.behaviours.at(path)
        if path in HEALTH_PATHS:
            if now.health_status is not None:
                self._send(now, now.health_status, {"status": "failing"})
            elif not stub.ready():
                self._send_loading(now)
            else:
                self._misbehave_or(now, stub.health)
        elif path == "/v1/models":
            # As llama.cpp: the list answers while the weights load, and only `meta` says that they do.
            meta = {"n_ctx_train": 2048} if stub.ready() else None
            entry = {"id": stub.model, "object": "model", "created": 0, "owned_by": "voxint", "meta": meta}
            self._misbehave_or(now, lambda: {"object": "list", "data": [entry]})
        else:
            self._send(now, 404, {"error": {"message": f"no such path: {path}", "code": 404}})

    def do_POST(self) -> None:
        """The service's own call."""
        stub, path = self.server.stub, self.path.partition("?")[0]
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _BODY_LIMIT))
        kind = CALLS[stub.service].get(path)
        now = stub.behaviours.at(path)
        if kind is None:
            self._send(now, 404, {"error": {"message": f"no such path: {path}", "code": 404}})
        elif not stub.ready():
            self._send_loading(now)
        else:
            self._serve(now, kind, body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library names it
        """Nothing: a test's output is for the test."""

    def _serve(self, now: Behaviour, kind: str, body: bytes) -> None:
        stub = self.server.stub
        with stub.busy, stub.card.request(kind):
            before = stub.count()
            if now.die_after is not None and before >= now.die_after:
                os._exit(1)
            if stub.takes_its_time(self.path.partition("?")[0]):
                return
            try:
                answer = self._answer(kind, body)
            except (form.FormError, ValueError, KeyError, TypeError) as error:
                self._send(now, 422, {"error": {"message": f"bad request: {error}", "code": 422}})
                return
            self._misbehave_or(now, lambda: answer)

    def _answer(self, kind: str, body: bytes) -> dict[str, Any]:
        stub = self.server.stub
        if kind == "chat":
            return answers.chat(json.loads(body), stub.model)
        fields = form.parse(self.headers.get("Content-Type", ""), body)
        heard = answers.Heard.of(fields["file"][0])
        if kind == "transcribe":
            return answers.transcription(heard, form.first(fields, "language"), stub.model)
        if kind == "diarize":
            fewest, most = form.first(fields, "min_speakers"), form.first(fields, "max_speakers")
            return answers.diarization(heard, int(fewest) if fewest else None, int(most) if most else None, stub.model)
        return answers.embedding(heard, json.loads(form.first(fields, "windows") or "[]"), stub.model)

    def _misbehave_or(self, now: Behaviour, answer: Callable[[], dict[str, Any]]) -> None:
        if now.stall:
            self.server.stub.stopping.wait()
        elif now.drop:
            self.close_connection = True
        elif now.status is not None:
            self._send(now, now.status, {"error": {"message": f"the stub was told to answer {now.status}"}})
        else:
            self._send(now, 200, answer())

    def _send_loading(self, now: Behaviour) -> None:
        self._send(now, 503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})

    def _send(self, now: Behaviour, status: int, value: dict[str, Any]) -> None:
        body = (json.dumps(value) if now.body is None else now.body).encode("utf-8", "surrogatepass")
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", now.content_type)
            self.send_header("Content-Length", str(len(body)))
            if now.retry_after is not None:
                self.send_header("Retry-After", str(now.retry_after))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if now.half else body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], stub: Stub) -> None:
        self.stub = stub
        super().__init__(address, Handler)


def serve(service: str, address: tuple[str, int], behaviours: Behaviours) -> int:
    """Take the card, listen until SIGTERM, leave. Gives the exit status."""
    side = Side.LLM if service == "language_model" else Side.AUDIO
    stub = Stub(service, behaviours, take_or_exit(side, service))
    stops: list[int] = []
    never = threading.Event()

    # No Event is set here: the main thread may be stopped in the middle of its wait for it, with its lock in hand.
    def asked_to_stop(number: int, _frame: object) -> None:
        if not behaviours.at().ignore_term:
            stops.append(number)

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    server: _Server | None = None
    while not stops:
        server = _listen_or_not(stub, address, server)
        if stub.loaded_by_now() and behaviours.at().start_fails:
            stub.card.leave()
            return 1
        never.wait(_LOOK_SECONDS)
    # As uvicorn does: the socket closes at once, the process goes when its model has been put away.
    _close(server)
    stub.stopping.set()
    asked = time.monotonic()
    while time.monotonic() - asked < behaviours.at().stop_seconds:
        threading.Event().wait(_LOOK_SECONDS)
    stub.busy.acquire(timeout=_LAST_CALL_SECONDS)
    stub.card.leave()
    return 0


def _listen_or_not(stub: Stub, address: tuple[str, int], server: _Server | None) -> _Server | None:
    if stub.wants_to_refuse():
        if server is None:
            threading.Event().wait(_LOOK_SECONDS)
        _close(server)
        return None
    if server is None:
        server = _Server(address, stub)
        threading.Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
    return server


def _close(server: _Server | None) -> None:
    if server is not None:
        server.shutdown()
        server.server_close()
