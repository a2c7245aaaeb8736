"""A small Docker engine for tests: the part of its API that Voxint uses, on a unix socket, with real processes inside.

Each container is a child process. A stop is SIGTERM, the container's own grace, SIGKILL; a pause is SIGSTOP. Codes and
words are those of a real engine (20.10); the same tests run on one where there is one.
"""

from __future__ import annotations

import itertools
import json
import queue
import signal
import socketserver
import struct
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"

_numbers = itertools.count(1)


@dataclass
class FakeContainer:
    """One container. `forced` puts it into a state that no process of ours can be in."""

    name: str
    labels: dict[str, str]
    argv: list[str]
    log: str
    stop_timeout: int | None = 1
    host_config: dict = field(default_factory=dict)
    forced: str | None = None
    health: dict | None = None
    refuse_start: str | None = None
    id: str = field(default_factory=lambda: f"{next(_numbers):064x}")
    created: str = field(default_factory=lambda: f"2026-11-30T06:00:00.{next(_numbers):09d}Z")
    process: subprocess.Popen | None = None
    paused: bool = False
    starts: int = 0
    stops: int = 0

    def status(self):
        if self.forced:
            return self.forced
        if self.process is None:
            return "created"
        if self.process.poll() is not None:
            return "exited"
        return "paused" if self.paused else "running"

    def exit_code(self):
        code = self.process.poll() if self.process else 0
        return 0 if code is None else (128 - code if code < 0 else code)

    def start(self):
        self.starts += 1
        with Path(self.log).open("ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self):
        self.stops += 1
        self.process.send_signal(signal.SIGTERM)
        self.paused = False
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10 if self.stop_timeout is None else self.stop_timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def document(self):
        state = {
            "Status": self.status(),
            "Running": self.status() in {"running", "paused", "restarting"},
            "Paused": self.paused,
            "OOMKilled": False,
            "ExitCode": self.exit_code(),
            "Error": "",
        }
        if self.health is not None:
            state["Health"] = self.health
        config = {"Labels": self.labels, "Tty": False}
        if self.stop_timeout is not None:
            config["StopTimeout"] = self.stop_timeout
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": self.created,
            "State": state,
            "Config": config,
            "HostConfig": self.host_config,
        }


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, _request, _address):
        """A client that gave up is what some tests are about."""


class FakeEngine:
    """The engine: containers by id, and what it may be told to do wrong."""

    def __init__(self, path):
        self.path = str(path)
        self.containers: dict[str, FakeContainer] = {}
        self.calls: list[tuple[str, str]] = []
        self.answer: tuple[int, bytes] | None = None
        self.listeners: list[queue.Queue] = []
        self.delay = 0.0
        self.names = True  # a container that is being removed has none
        self.together: threading.Barrier | None = None
        """Where set, an inspection is answered when as many are asked for as it has parties."""
        self.server = None

    @property
    def host(self):
        return f"unix://{self.path}"

    def add(self, container):
        self.containers[container.id] = container
        return container

    def remove(self, container):
        container.end()
        del self.containers[container.id]

    def serve(self):
        Path(self.path).unlink(missing_ok=True)
        engine = self

        class Handler(_Handler):
            pass

        Handler.engine = engine
        self.server = _Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def down(self):
        """The daemon ends; its socket file stays, as it does after a kill -9."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def close(self):
        self.down()
        for container in self.containers.values():
            container.end()


class _Handler(BaseHTTPRequestHandler):
    engine: FakeEngine
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def _serve(self):
        parts = urlsplit(self.path)
        path = parts.path.split("/")
        if path[1].startswith("v1."):
            del path[1]
        self.engine.calls.append((self.command, "/".join(path)))
        if self.engine.delay:
            time.sleep(self.engine.delay)
        if self.engine.together is not None and path[-1] == "json" and len(path) == 4:
            self.engine.together.wait()
        if self.engine.answer is not None:
            return self._say(*self.engine.answer)
        match (self.command, *path[1:]):
            case ("GET", "version"):
                return self._json(200, {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.24"})
            case ("GET", "events"):
                return self._events()
            case ("GET", "containers", "json"):
                return self._json(200, self._list(parse_qs(parts.query)))
            case (_, "containers", id_, verb):
                container = self.engine.containers.get(id_)
                if container is None:
                    return self._json(404, {"message": f"No such container: {id_}"})
                return self._container(container, verb)
        return self._json(404, {"message": "page not found"})

    def _events(self):
        """The stream of what happens to containers, until the engine ends."""
        news = queue.Queue()
        self.engine.listeners.append(news)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.close_connection = True
        while self.engine.server is not None:
            try:
                self.wfile.write(json.dumps(news.get(timeout=0.1)).encode() + b"\n")
                self.wfile.flush()
            except queue.Empty:
                continue
            except OSError:
                return

    def _list(self, query):
        wanted = json.loads(query.get("filters", ["{}"])[0]).get("label", [])
        return [
            {
                "Id": container.id,
                "Names": [f"/{container.name}"] if self.engine.names else None,
                "Labels": container.labels,
                "State": container.status(),
            }
            for container in list(self.engine.containers.values())
            if all(_has(container.labels, label) for label in wanted)
        ]

    def _container(self, container, verb):
        match (self.command, verb):
            case ("GET", "json"):
                return self._json(200, container.document())
            case ("GET", "logs"):
                query = parse_qs(urlsplit(self.path).query)
                tail = int(query.get("tail", ["1"])[0])
                time_of = b"2026-09-25T12:00:00.123456789Z " if query.get("timestamps") == ["1"] else b""
                with Path(container.log).open("rb") as file:
                    lines = file.read().splitlines(keepends=True)[-tail:]
                body = b"".join(struct.pack(">BxxxL", 1, len(time_of + part)) + time_of + part for part in lines)
                return self._say(200, body, "application/vnd.docker.raw-stream")
            case ("POST", "start"):
                return self._start(container)
            case ("POST", "stop"):
                if container.status() not in {"running", "paused", "restarting"}:
                    return self._say(304, b"")
                container.stop()
                return self._say(204, b"")
            case ("POST", "kill"):
                container.end()
                return self._say(204, b"")
            case ("POST", "unpause"):
                if not container.paused:
                    return self._json(500, {"message": f"Container {container.id} is not paused"})
                container.paused = False
                container.process.send_signal(signal.SIGCONT)
                return self._say(204, b"")
        return self._json(404, {"message": "page not found"})

    def _start(self, container):
        status = container.status()
        if status == "running":
            return self._say(304, b"")
        if status == "paused":
            return self._json(409, {"message": "cannot start a paused container, try unpause instead"})
        if status in {"dead", "removing"}:
            return self._json(409, {"message": "container is marked for removal and cannot be started"})
        if container.refuse_start:
            return self._json(500, {"message": container.refuse_start})
        container.start()
        for news in self.engine.listeners:
            news.put({"Type": "container", "Action": "start", "Actor": {"ID": container.id}})
        return self._say(204, b"")

    def _json(self, code, value):
        self._say(code, json.dumps(value).encode(), "application/json")

    def _say(self, code, body, content_type="text/plain"):
        self.send_response(code)
        self.send_header("Api-Version", "1.41")
        if code not in {204, 304}:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if code not in {204, 304}:
            self.wfile.write(body)


def _has(labels, wanted):
    name, equals, value = wanted.partition("=")
    return name in labels and (not equals or labels[name] == value)
