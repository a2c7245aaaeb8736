"""GPU sharing with the proxy between the worker and a real engine's socket."""

from __future__ import annotations

import json

import pytest
from docker_stack import FILES

pytestmark = pytest.mark.timeout(1500)
WITH = (*FILES[:-1], "compose.socket-proxy.yaml", FILES[-1])
ASK = """
import json, sys, http.client
asked = []
for method, path in json.loads(sys.argv[1]):
    connection = http.client.HTTPConnection("docker-proxy", 2375, timeout=10)
    connection.request(method, path)
    asked.append(connection.getresponse().status)
print(json.dumps(asked))
"""


def test_a_turn_through_the_proxy_and_nothing_beyond_it(stack):
    stack.up(files=WITH)
    try:
        stack.wait_ticks()
        worker = stack.container("gpu-phase")
        assert not [mount for mount in worker.attrs["Mounts"] if "docker.sock" in mount["Destination"]]
        stack.wait_done([stack.add()])
        stack.settle()
        postgres = stack.container("postgres").id
        calls = [
            ("GET", "/version"),
            ("GET", "/info"),
            ("POST", "/containers/create"),
            ("POST", f"/containers/{postgres}/stop"),
            ("POST", f"/containers/{stack.container('whisper').id}/exec"),
        ]
        answers = stack.inside("gpu-phase", "python3", "-c", ASK, json.dumps(calls)).stdout
        assert json.loads(answers) == [200, 403, 403, 403, 403]
        unreached = stack.inside("worker", "python3", "-c", ASK, json.dumps(calls[:1]), check=False)
        assert unreached.returncode != 0
        assert "gaierror" in unreached.stderr
    finally:
        stack.up("--remove-orphans")
