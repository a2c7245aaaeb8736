"""`python -m voxint.services.socket_proxy`: stands between the gpu-phase worker and the Docker socket.

It alone mounts the socket, and is reached over a network that it shares with the worker and with nobody else. What it
lets through stands in socket_rules.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from voxint.logs import set_up
from voxint.services.engine_words import no_answer
from voxint.services.socket_rules import passed, refusal, without_secrets
from voxint.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from voxint.services.socket_rules import Passed

SOCKET = "/var/run/docker.sock"
PORT = 2375
CALL_SECONDS = 660.0
"""Longest wait for the engine: the longest grace of a stop, and a minute."""

_log = logging.getLogger(__name__)


class _Engine(http.client.HTTPConnection):
    """A connection to the engine's unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=CALL_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError:
            self.close()
            raise


class Proxy(ThreadingHTTPServer):
    """The proxy's server. Each connection has a thread; nothing is kept between calls."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], engine: str, project: str, services: Collection[str]) -> None:
        """Listen on an address, for one engine's socket, one compose project and its model services."""
        self.engine = engine
        self.project = project
        self.services = frozenset(services)
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"
    timeout = CALL_SECONDS

    def do_GET(self) -> None:
        """Pass a question on."""
        self._pass()

    def do_HEAD(self) -> None:
        """Pass a ping on."""
        self._pass()

    def do_POST(self) -> None:
        """Pass a change on. No body goes with it."""
        self._pass()

    def _pass(self) -> None:
        self.close_connection = True  # a body that is not read must not become the next request
        parts = urlsplit(self.path)
        call = passed(self.command, parts.path, parts.query, self.server.project)
        if call is None:
            self._refuse(f"the socket proxy allows no {self.command} {parts.path}")
            return
        try:
            if call.container is None or self._may(call, call.container):
                self._answer(*self._ask(call.method, call.target), inspects=call.inspects)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._say(502, {"message": no_answer(error, f"unix://{self.server.engine}")})

    def _may(self, call: Passed, container: str) -> bool:
        """Whether this call about a container goes on; where not, that is answered here."""
        code, content_type, body = self._ask("GET", f"/containers/{container}/json")
        if code != 200:  # whose it is cannot be told: the engine's own words go back, and nothing goes on
            self._send(code, content_type, body)
            return False
        why = refusal(json.loads(body), call, self.server.project, self.server.services)
        if why is not None:
            self._refuse(f"the socket proxy allows no {self.command} of this container: {why}")
        return why is None

    def _ask(self, method: str, target: str) -> tuple[int, str, bytes]:
        connection = _Engine(self.server.engine)
        try:
            connection.request(method, target, headers={"Host": "docker"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def _answer(self, code: int, content_type: str, body: bytes, *, inspects: bool) -> None:
        if inspects and code == 200:
            body = json.dumps(without_secrets(json.loads(body))).encode()
        self._send(code, content_type, body)

    def _refuse(self, why: str) -> None:
        _log.warning("refused: %s", why)
        self._say(403, {"message": why})

    def _say(self, code: int, value: dict[str, Any]) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(self, code: int, content_type: str, body: bytes) -> None:
        bodiless = code in {204, 304}
        self.send_response(code)
        if not bodiless:
            self.send_header("Content-Type", content_type or "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if not bodiless and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """What passes is not logged: the worker asks every few seconds."""


def main() -> int:
    """Serve until told to stop; the exit status."""
    try:
        settings = load_settings(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    set_up(json=settings.log_json)
    listen = os.environ.get("SOCKET_PROXY_LISTEN", "0.0.0.0")  # noqa: S104 - of a network with one other on it
    try:
        proxy = Proxy((listen, PORT), SOCKET, settings.compose_project_name, settings.gpu_phase_services)
    except OSError as error:
        sys.stderr.write(f"SOCKET_PROXY_LISTEN: cannot listen on {listen}, port {PORT}: {error.strerror or error}\n")
        return 1
    with proxy as server:
        _log.info("passes calls about %s of %s", ", ".join(sorted(server.services)), server.project)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
