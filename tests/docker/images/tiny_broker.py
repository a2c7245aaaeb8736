# ruff: noqa: PLW0603, PTH123, ANN
"""A lease broker in a few dozen lines, as an operator might write one: it owns one language-model process."""

import json
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = [sys.executable, "-m", "voxint_models.stub", "language_model", "--host", "0.0.0.0", "--port", "8001"]
lock = threading.RLock()
lease = None
model = None


def start_model():
    global model
    if model is None or model.poll() is not None:
        model = subprocess.Popen([*MODEL, *sys.argv[1:]])


def stop_model():
    if model is not None and model.poll() is None:
        model.terminate()
        try:
            model.wait(8)
        except subprocess.TimeoutExpired:
            model.kill()
            model.wait()


def told(call):
    """What a test wants of a call: pending, refused, failed, or nothing special."""
    try:
        with open("/card/broker.json") as file:
            return json.load(file).get(call)
    except (OSError, ValueError):
        return None


class Broker(BaseHTTPRequestHandler):
    def do_GET(self):
        with lock:
            held = lease is not None
            self.say(
                200,
                {
                    "state": "held" if held else "free",
                    "holder": "voxint" if held else None,
                    "lease_id": lease and lease["lease_id"],
                    "expires_at": lease and lease["expires_at"],
                },
            )

    def do_POST(self):
        global lease
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            if self.path.endswith("/acquire"):
                asked = body["lease_id"]
                if asked is not None and (lease is None or asked != lease["lease_id"]):
                    return self.say(404, {})
                match told("acquire") if asked is None else None:
                    case "pending":
                        stop_model()
                        return self.say(202, {"state": "pending"})
                    case "refused":
                        return self.say(409, {"holder": "somebody-else"})
                    case "failed":
                        return self.say(500, {"error": "as the test wants it"})
                stop_model()
                until = datetime.now(UTC) + timedelta(seconds=body["ttl_seconds"])
                lease = {"lease_id": lease["lease_id"] if lease else uuid.uuid4().hex, "expires_at": until.isoformat()}
                return self.say(200, lease)
            if lease is None or body["lease_id"] != lease["lease_id"]:
                return self.say(404, {})
            match told("release"):
                case "pending":
                    return self.say(202, {"state": "pending"})
                case "failed":
                    return self.say(500, {"error": "as the test wants it"})
            start_model()
            time.sleep(0.5)
            if model.poll() is not None:
                return self.say(500, {"error": "the language model did not come back"})
            lease = None
            return self.say(200, {})

    def say(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


start_model()
ThreadingHTTPServer(("0.0.0.0", 9100), Broker).serve_forever()
