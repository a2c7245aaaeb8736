"""The four model servers in this process, on one port each: by default as the stand-ins answer, else as a test says."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from voxint.settings import load_settings
from voxint_models.stub import answers, form

PATHS = {
    "/v1/audio/transcriptions": "whisper",
    "/v1/diarize": "pyannote",
    "/v1/embed": "titanet",
    "/v1/chat/completions": "language_model",
    "/v1/models": "models",
}


class Raw:
    """An answer byte for byte. `drip`: seconds before each byte. `drop`: the connection just ends."""

    def __init__(self, status=200, body=b"", headers=None, *, drip=0.0, wait=0.0, drop=False, half=False):
        self.status = status
        self.body = body.encode() if isinstance(body, str) else body
        self.headers = headers or {}
        self.drip, self.wait, self.drop, self.half = drip, wait, drop, half


def answer_json(value, status=200, **headers):
    return Raw(status, json.dumps(value), headers)


def says(content, finish="stop", **more):
    """A chat completion with this content."""
    message = {"role": "assistant", "content": content, **more}
    return answer_json({"model": "scripted", "choices": [{"message": message, "finish_reason": finish}]})


class ScriptedServices:
    """`script[name] = [answer, ...]` is used up one by one, `always[name] = answer` stays; an answer may be a function
    of the request (dict of body, fields, headers). `asked[name]` keeps the requests."""

    def __init__(self):
        self.script = {name: [] for name in PATHS.values()}
        self.always = {}
        self.asked = {name: [] for name in PATHS.values()}
        services = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                services._serve(self, b"")

            def do_POST(self):
                services._serve(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    def settings(self, **more):
        environ = {f"{name}_URL": self.url for name in ("WHISPER", "PYANNOTE", "TITANET")}
        return load_settings(environ | {"LLM_BASE_URL": self.url + "/v1"} | more)

    def _serve(self, handler, body):
        name = PATHS.get(handler.path.partition("?")[0])
        if name is None:
            self._send(handler, answer_json({"error": "no such path"}, 404))
            return
        request = {"body": body, "headers": dict(handler.headers), "fields": self._fields(handler, body)}
        self.asked[name].append(request)
        answer = self.script[name].pop(0) if self.script[name] else self.always.get(name, self._usual)
        if callable(answer):
            answer = answer(name, request) if answer == self._usual else answer(request)
        self._send(handler, answer)

    @staticmethod
    def _fields(handler, body):
        kind = handler.headers.get("Content-Type", "")
        if kind.startswith("multipart/"):
            return form.parse(kind, body)
        return json.loads(body) if body else {}

    def _usual(self, name, request):
        fields = request["fields"]
        if name == "models":
            return answer_json({"object": "list", "data": [{"id": "scripted"}]})
        if name == "language_model":
            return answer_json(answers.chat(fields, "scripted-llm"))
        heard = answers.Heard.of(fields["file"][0])
        if name == "whisper":
            return answer_json(answers.transcription(heard, form.first(fields, "language"), "scripted-whisper"))
        if name == "pyannote":
            return answer_json(answers.diarization(heard, None, None))
        return answer_json(answers.embedding(heard, json.loads(form.first(fields, "windows")), "scripted-titanet"))

    @staticmethod
    def _send(handler, answer):
        time.sleep(answer.wait)
        if answer.drop:
            return
        try:
            handler.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            if answer.drip:
                for byte in answer.body:
                    handler.wfile.write(bytes([byte]))
                    handler.wfile.flush()
                    time.sleep(answer.drip)
            else:
                handler.wfile.write(answer.body[: len(answer.body) // 2] if answer.half else answer.body)
        except OSError:
            pass
