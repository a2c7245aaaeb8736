"""Servers that say one thing, nothing, or never accept a connection."""

from __future__ import annotations

import contextlib
import socket
import threading


@contextlib.contextmanager
def answering(reply):
    """A server that says one thing to each connection; None accepts, and is silent."""
    server = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                kept.append(connection)
                if reply is not None:
                    connection.recv(4096)
                    connection.sendall(reply)
                    connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)
        for connection in kept:
            connection.close()


@contextlib.contextmanager
def never_accepting():
    """A listener whose queue is full: a connection is never made, and never refused."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


def http(status, body=b"", kind="application/json"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
