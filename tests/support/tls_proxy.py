"""A small proxy that ends TLS before a console, as Caddy and nginx do: one connection a request, headers as they set them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from ports import free_port

ADDRESS = "127.0.0.1"  # and not localhost, which may be ::1 first, where somebody else may listen


def certificate(folder):
    """A certificate for this machine and its key, made by openssl: paths of both."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here to make a certificate with")
    key, made = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", key, "-out", made, "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-addext", f"subjectAltName=IP:{ADDRESS}"], check=True, capture_output=True)
    return made, key


class TlsProxy:
    """Listens with TLS on a port of its own, and passes requests on to `behind` without it.

    `comes_from` is the address that it tells of its visitor: the proxy's own visitors are all on this machine.
    """

    def __init__(self, folder, behind, comes_from="198.51.100.7"):
        self.certificate, key = certificate(folder)
        self.behind = behind
        self.comes_from = comes_from
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self.port = free_port()
        self._socket = socket.create_server((ADDRESS, self.port), backlog=64)
        self.url = f"https://{ADDRESS}:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        # A close alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def trust(self):
        """A client's context that believes this proxy's certificate and no other."""
        return ssl.create_default_context(cafile=self.certificate)

    def _serve(self):
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(plain,), daemon=True).start()

    def _one(self, plain):
        with contextlib.suppress(OSError), plain:
            plain.settimeout(60)
            with (
                self._context.wrap_socket(plain, server_side=True) as visitor,
                socket.create_connection((ADDRESS, self.behind), timeout=60) as console,
            ):
                # In one thread: another one in recv would go on reading from whatever has this socket's number next.
                head, begun = read_head(visitor)
                console.sendall(self._passed_on(head) + begun)
                left = length_in(head) - len(begun)
                while left > 0 and (more := visitor.recv(65_536)):
                    console.sendall(more)
                    left -= len(more)
                while more := console.recv(65_536):
                    visitor.sendall(more)

    def _passed_on(self, head):
        """The head with the proxy's own headers; what a visitor claims to have come through stays in front of them."""
        first, *lines = head.decode("latin-1").split("\r\n")
        kept, claimed = [], []
        for line in lines:
            name = line.partition(":")[0].lower()
            if name == "x-forwarded-for":
                claimed.append(line.partition(":")[2].strip())
            elif name not in {"x-forwarded-proto", "connection"}:
                kept.append(line)
        kept.append("X-Forwarded-For: " + ", ".join([*claimed, self.comes_from]))
        kept += ["X-Forwarded-Proto: https", "Connection: close"]
        return "\r\n".join([first, *kept, "", ""]).encode("latin-1")


def read_head(visitor):
    """A request's head without its blank line, and what came of the body with it."""
    found = b""
    while b"\r\n\r\n" not in found:
        more = visitor.recv(65_536)
        if not more:
            raise OSError("the visitor went away")
        found += more
    head, _, begun = found.partition(b"\r\n\r\n")
    return head, begun


def length_in(head):
    """How long the body is that follows; clients of these tests always say so."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
