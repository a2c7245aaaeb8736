"""Stand-ins for model servers that stay and give their memory back: vLLM, Ollama, llama-swap, llama.cpp's router.

They are written from the pages that docs/reference/broker-adapters.md names.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """A stand-in for a model server: `routes` maps (method, path) to a function of the body."""

    def __init__(self):
        self.loaded = {"a": "loaded", "b": "loaded"}
        self.at_work: set[str] = set()
        self.sleeping = False
        self.calls = []
        self.routes = {}
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stand_in.calls.append((self.command, self.path, json.loads(body) if body else None))
                route = stand_in.routes.get((self.command, self.path.partition("?")[0]))
                code, value = route(json.loads(body) if body else None) if route else (404, {})
                data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.answer()

            def do_POST(self):
                self.answer()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    def sleep(self, *, deep):
        self.sleeping = deep
        return 200, ""

    def forget(self, name):
        return 200, {"done": self.loaded.pop(name, None)}

    def done(self, name):
        """A request that was in flight has been answered."""
        self.at_work.discard(name)
        self.forget(name)

    def wake(self, path):
        # At level 2 it wakes in parts, and sleeps until the last of them.
        self.sleeping = "tags=weights" in path
        return 200, ""

    def as_vllm(self):
        self.routes = {
            ("GET", "/is_sleeping"): lambda _: (200, {"is_sleeping": self.sleeping}),
            ("POST", "/sleep"): lambda _: self.sleep(deep=True),
            ("POST", "/wake_up"): lambda _: self.wake(self.calls[-1][1]),
            ("POST", "/collective_rpc"): lambda _: (200, {"results": [None]}),
        }

    def as_ollama(self):
        def generate(body):
            if body.get("keep_alive") == 0:
                return (200, {"done": True}) if body["model"] in self.at_work else self.forget(body["model"])
            self.loaded[body["model"]] = "loaded"
            return 200, {"done": True}

        self.routes = {
            ("GET", "/api/ps"): lambda _: (200, {"models": [{"model": name} for name in self.loaded]}),
            ("POST", "/api/generate"): generate,
        }

    def as_llama_swap(self):
        def unload(_):
            self.loaded = {}
            return 200, "OK"

        self.routes = {
            ("GET", "/running"): lambda _: (
                200,
                {
                    "running": [
                        {"model": name, "state": "ready"} for name, state in self.loaded.items() if state != "starting"
                    ]
                },
            ),
            ("GET", "/unload"): unload,
        }

    def as_llama_cpp(self):
        def models(_):
            data = [{"id": name, "status": {"value": state}} for name, state in self.loaded.items()]
            return 200, {"data": [*data, {"id": "other", "status": {"value": "unloaded"}}]}

        self.routes = {
            ("GET", "/models"): models,
            ("POST", "/models/unload"): lambda body: self.forget(body["model"]),
            ("POST", "/models/load"): lambda body: (200, self.loaded.setdefault(body["model"], "loaded")),
        }
