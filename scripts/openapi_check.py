"""Schemathesis against the broker's own OpenAPI document: `make test-openapi`.

A broker over a made-up card is asked what its document allows, and what it does not. Each answer must be one that the
document names, in the form that it gives, and never a 5xx; and the token must be wanted wherever the document says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

TOKEN = "a-token-of-the-tests"
EXAMPLES = "100"


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def serve(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """A broker whose service is `sleep`, with a token, ready to answer."""
    answers = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port + 1)], cwd=folder)
    (folder / "broker.toml").write_text(
        f'listen = ["127.0.0.1:{port}"]\nstate_dir = "state"\ntoken = "{TOKEN}"\n[memory]\nkind = "none"\n'
        '[[service]]\nname = "lm"\nkind = "child"\ncommand = ["sleep", "3600"]\n'
        f'ready_url = "http://127.0.0.1:{port + 1}/broker.toml"\n'
    )
    config = ["--config", str(folder / "broker.toml")]
    process = subprocess.Popen([sys.executable, "-m", "voxint_broker", "serve", *config], stderr=subprocess.DEVNULL)
    process.service = answers  # type: ignore[attr-defined]
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return process
        threading.Event().wait(0.05)
    raise SystemExit("the broker did not start")


def main() -> int:
    """Run it; the exit status."""
    program = Path(sys.executable).with_name("st")
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker = serve(folder, port)
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/openapi.json")
            request.add_header("Authorization", f"Bearer {TOKEN}")
            with urllib.request.urlopen(request, timeout=10) as answer:
                document = json.load(answer)
            (folder / "openapi.json").write_text(json.dumps(document))
            command = [program, "run", str(folder / "openapi.json"), "--url", f"http://127.0.0.1:{port}"]
            command += ["--checks", "all", "--max-examples", os.environ.get("EXAMPLES", EXAMPLES), "--no-color"]
            command += ["--header", f"Authorization: Bearer {TOKEN}", *sys.argv[1:]]
            return subprocess.run(command, check=False, cwd=folder).returncode
        finally:
            for each in (broker, broker.service):  # type: ignore[attr-defined]
                each.terminate()
                each.wait(20)


if __name__ == "__main__":
    raise SystemExit(main())
