"""The smallest broker that keeps the contract, over a made-up service; and twelve that each break it in one way.

It stands for the brokers that operators write themselves. `fault` names what is wrong with one.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = (
    "grants at once",  # the other service still answers
    "never grants",  # pending for ever
    "grants twice",  # a second holder gets a lease too
    "renews with another id",
    "renews anything",  # an unknown id is answered 200
    "refuses with 503",  # where the contract has 409
    "forgets to release",  # 200, and status still says held
    "releases anything",  # an unknown id ends the lease
    "answers 200 to an unknown release",
    "status without an id",
    "naive pages",  # a web page with 200 as status
    "release before the service is back",
)


class SmallBroker:
    """A broker on loopback. `service_runs` is the made-up service; its address answers 200 or 503."""

    def __init__(self, fault: str = "", *, stop_seconds: float = 0.05, start_seconds: float = 0.05, token: str = ""):
        self.fault = fault
        self.token = token
        self.lock = threading.Lock()
        self.lease: dict | None = None
        self.phase = "free"
        self.due = 0.0
        self.stop_seconds, self.start_seconds = stop_seconds, start_seconds
        self.number = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    @property
    def service_runs(self) -> bool:
        if self.fault == "grants at once" and self.phase == "held":
            return True
        return self.phase == "free"

    def _pass_time(self) -> None:
        now = time.monotonic()
        if self.phase == "stopping" and now >= self.due and self.fault != "never grants":
            self.phase = "held"
        if self.phase == "starting" and now >= self.due:
            self.phase = "free"
            if self.fault != "forgets to release":
                self.lease = None
        if self.lease and self.phase == "held" and now >= self.lease["until"]:
            self.phase, self.due, self.lease = "starting", now + self.start_seconds, None

    def _new_lease(self, holder, ttl):
        self.number += 1
        return {"id": f"lease-{self.number}", "holder": holder, "until": time.monotonic() + ttl, "ttl": ttl}

    def _granted(self):
        left = timedelta(seconds=self.lease["until"] - time.monotonic())
        return 200, {"lease_id": self.lease["id"], "expires_at": (datetime.now(UTC) + left).isoformat()}

    def acquire(self, holder, ttl, lease_id):
        if lease_id is not None:
            if self.lease and self.lease["id"] == lease_id and self.phase == "held":
                self.lease["until"] = time.monotonic() + ttl
                if self.fault == "renews with another id":
                    self.number += 1
                    self.lease["id"] = f"lease-{self.number}"
                return self._granted()
            if self.fault == "renews anything":
                return 200, {"lease_id": lease_id, "expires_at": None}
            return 404, {}
        if self.lease and self.lease["holder"] != holder:
            if self.fault == "grants twice" and self.phase == "held":
                return 200, {"lease_id": "second", "expires_at": None}
            return (503 if self.fault == "refuses with 503" else 409), {"holder": self.lease["holder"]}
        if self.phase == "held" and self.lease:
            return self._granted()
        if self.phase == "free":
            self.lease = self._new_lease(holder, ttl)
            self.phase, self.due = "stopping", time.monotonic() + self.stop_seconds
            if self.fault == "grants at once":
                self.phase = "held"
                return self._granted()
        return 202, {"state": "pending"}

    def release(self, lease_id):
        known = self.lease is not None and self.lease["id"] == lease_id
        if self.phase == "held" and (known or self.fault == "releases anything"):
            self.phase, self.due = "starting", time.monotonic() + self.start_seconds
            if self.fault == "release before the service is back":
                self.due += 1.0
                self.lease = None
                return 200, {}
            if not known:
                self.lease = None
                return 404, {}
            return 202, {"state": "pending"}
        if self.phase == "starting" and known:
            return 202, {"state": "pending"}
        if self.fault == "answers 200 to an unknown release":
            return 200, {}
        if self.fault == "forgets to release" and known:
            return 200, {}
        return (200, {}) if lease_id == f"lease-{self.number}" and self.phase == "free" else (404, {})

    def status(self):
        lease = self.lease if self.phase in {"held", "starting"} or self.fault == "forgets to release" else None
        return 200, {
            "state": "held" if lease else "free",
            "holder": lease["holder"] if lease else None,
            "lease_id": lease["id"] if lease and self.fault != "status without an id" else None,
            "expires_at": None,
        }

    def _handler(broker):  # noqa: N805, C901 - the handler has a self of its own, and answers all paths
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments):
                pass

            def answer(self, code, body):
                page = broker.fault == "naive pages" and self.path == "/gpu/status"
                data = b"<html>hello</html>" if page else json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/html" if page else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def respond(self, make):
                with broker.lock:
                    broker._pass_time()
                    if broker.token and self.headers.get("Authorization") != f"Bearer {broker.token}":
                        code, body = 401, {"error": "token"}
                    else:
                        code, body = make()
                self.answer(code, body)

            def do_GET(self):
                if self.path == "/service":
                    with broker.lock:
                        broker._pass_time()
                        code = 200 if broker.service_runs else 503
                    self.answer(code, {})
                elif self.path == "/gpu/status":
                    self.respond(broker.status)
                else:
                    self.answer(404, {})

            def do_POST(self):
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length) or b"{}")
                if self.path == "/gpu/acquire":
                    self.respond(lambda: broker.acquire(body["holder"], body["ttl_seconds"], body.get("lease_id")))
                elif self.path == "/gpu/release":
                    self.respond(lambda: broker.release(body["lease_id"]))
                else:
                    self.answer(404, {})

        return Handler
