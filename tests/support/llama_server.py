"""llama.cpp's own server, from the xllamacpp package: `python llama_server.py PORT MODEL.gguf`, until SIGTERM.

The package holds the server's C++ code, so its HTTP surface is the real one: /health, /slots, /v1/completions.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import xllamacpp


def main() -> None:
    """Serve until a signal."""
    ended = []  # a handler that sets an Event can wait for ever: the main thread's own wait may hold its lock
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    wish = xllamacpp.CommonParams()
    wish.model.path = sys.argv[2]
    wish.n_ctx = 2048
    wish.n_parallel = 1
    wish.cpuparams.n_threads = 1
    wish.endpoint_slots = True
    wish.endpoint_metrics = True
    wish.hostnames = ["127.0.0.1"]
    wish.port = int(sys.argv[1])
    server = xllamacpp.Server(wish)
    print(server.listening_address, flush=True)
    while not ended:
        time.sleep(0.2)
    os._exit(0)  # the library waits in its destructor for requests in flight


if __name__ == "__main__":
    main()
