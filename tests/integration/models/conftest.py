"""Model servers as processes."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

import httpx
import pytest
from ports import free_port


class ModelServer:
    """A real server as a process of its own, on the card of `folder`, without a way to the network for its libraries."""

    def __init__(self, folder, service, *options, **environment):
        self.port = free_port()
        self.ledger_file = folder / "card.ledger"
        env = os.environ | {
            "CARD_LOCK": str(folder / "card.lock"),
            "CARD_LEDGER": str(self.ledger_file),
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HOME": str(folder),
            **environment,
        }
        argv = [sys.executable, "-m", f"voxint_models.{service}", "--port", str(self.port), *options]
        self.popen = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=300, trust_env=False)

    def _read(self):
        for line in self.popen.stderr:
            self.said += line

    def until(self, condition, seconds=100):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.popen.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if condition():
                    return True
            time.sleep(0.05)
        return False

    def ready(self):
        assert self.until(lambda: self.client.get("/healthz").status_code == 200), self.said
        return self

    def ends(self, seconds=100):
        """Exit status, and what it wrote."""
        status = self.popen.wait(seconds)
        self._reader.join(5)
        return status, self.said

    def ledger(self):
        return [json.loads(line) for line in self.ledger_file.read_text().splitlines()]

    def close(self):
        self.client.close()
        self.popen.kill()
        self.popen.wait()
        self._reader.join(5)
        self.popen.stderr.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Started once a module, by service: `servers("whisper")`."""
    folder = tmp_path_factory.mktemp("card")
    made = {}

    def server(service):
        if service not in made:
            made[service] = ModelServer(folder, service)
        return made[service].ready()

    yield server
    for one in made.values():
        one.close()


@pytest.fixture
def start(tmp_path):
    """A server of this test's own: `start("whisper", "--queue", "0")`."""
    made = []

    def begin(service, *options, **environment):
        made.append(ModelServer(tmp_path, service, *options, **environment))
        return made[-1]

    yield begin
    for one in made:
        one.close()
