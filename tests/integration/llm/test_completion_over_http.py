"""A chat completion through OpenAI's client, over loopback: what is sent, what an odd answer becomes, and how long it lasts."""

from __future__ import annotations

import gzip
import threading
import time
from datetime import timedelta

import pytest
from scripted_services import Raw, ScriptedServices, answer_json, says

from voxint.llm.client import LlmBusyError, LlmClient, LlmError
from voxint.llm.completion import complete
from voxint.services.exchange import (
    AbandonedError,
    DroppedError,
    ExchangeError,
    NotListeningError,
    TooLargeError,
    TooSlowError,
    run,
    watched,
)

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@pytest.fixture
def services():
    made = ScriptedServices()
    yield made
    made.close()


def ask(services, *, seconds=30.0, limit=1 << 20, headers=None, base=None, lost=None):
    total = timedelta(seconds=seconds)
    return run(watched(complete(base or f"{services.url}/v1", headers or {}, BODY, total, limit), lost))


def client(services, **more):
    return LlmClient(services.settings(LLM_MODEL="m", **more), "ENHANCE")


def test_nothing_of_the_environment_is_sent(services, monkeypatch):
    for name, value in {
        "OPENAI_API_KEY": "sk-of-somebody",
        "OPENAI_ORG_ID": "org-of-somebody",
        "OPENAI_PROJECT_ID": "project-of-somebody",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_CUSTOM_HEADERS": "X-Of: somebody",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    services.script["language_model"] = [says("fine")]
    assert client(services).chat(BODY["messages"], max_tokens=5).text == "fine"
    (asked,) = services.asked["language_model"]
    assert "somebody" not in str(asked["headers"])
    assert not any(name.lower().startswith(("authorization", "x-stainless", "openai-")) for name in asked["headers"])


def test_the_key_of_the_settings_is_sent_and_the_question_as_it_is(services):
    services.script["language_model"] = [says("fine")]
    client(services, LLM_API_KEY="key-1").chat(BODY["messages"], max_tokens=7, schema={"type": "object"})
    (asked,) = services.asked["language_model"]
    assert asked["headers"]["Authorization"] == "Bearer key-1"
    fields = asked["fields"]
    assert (fields["model"], fields["messages"], fields["max_tokens"], fields["temperature"], fields["stream"]) == (
        "m",
        BODY["messages"],
        7,
        0,
        False,
    )
    assert fields["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_an_answer_that_is_too_large_is_not_kept(services):
    services.script["language_model"] = [says("x" * 5000), answer_json({"error": "y" * 5000}, 500)]
    for _ in range(2):
        with pytest.raises(TooLargeError, match="larger than 1000 bytes"):
            ask(services, limit=1000)


def test_an_answer_that_is_packed_is_not_unpacked(services):
    packed = gzip.compress(b" " * 10_000_000)
    services.script["language_model"] = [Raw(200, packed, {"Content-Encoding": "gzip"})]
    with pytest.raises(DroppedError, match="encoded"):
        ask(services)


def test_a_dripping_answer_ends_with_the_limit(services):
    services.script["language_model"] = [Raw(200, b"x" * 600, drip=0.1)]
    begun = time.monotonic()
    with pytest.raises(TooSlowError, match="within 1 s"):
        ask(services, seconds=1)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("answer", [Raw(drop=True), Raw(200, b'{"choices": []}', half=True)])
def test_a_connection_that_ends_early_is_no_answer_and_is_asked_once(services, answer):
    services.script["language_model"] = [answer]
    services.always["language_model"] = says("a second try")
    with pytest.raises(DroppedError):
        ask(services)
    assert len(services.asked["language_model"]) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 408, 409])
def test_the_library_tries_nothing_twice_by_itself(services, status):
    services.script["language_model"] = [answer_json({"error": {"message": "no"}}, status, retry_after="7")]
    services.always["language_model"] = says("a second try")
    with pytest.raises(LlmError) as caught:
        client(services).chat(BODY["messages"], max_tokens=5)
    assert len(services.asked["language_model"]) == 1
    assert "no" in str(caught.value)
    if status in {429, 503}:
        assert isinstance(caught.value, LlmBusyError)
        assert caught.value.retry_in == timedelta(seconds=7)


def test_a_redirect_is_not_followed(services):
    services.script["language_model"] = [Raw(307, b"", {"Location": f"{services.url}/v1/models"})]
    with pytest.raises(LlmError, match="307"):
        client(services).chat(BODY["messages"], max_tokens=5)
    assert services.asked["models"] == []


def test_a_lost_claim_ends_the_wait(services):
    lost = threading.Event()
    services.script["language_model"] = [Raw(200, b"{}", wait=5)]
    threading.Timer(0.3, lost.set).start()
    with pytest.raises(AbandonedError):
        ask(services, lost=lost)


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("http://127.0.0.1:9/v1", NotListeningError),
        ("http://no-such-host.invalid/v1", NotListeningError),
        ("whisper:9000", ExchangeError),
        ("http://127.0.0.1:99999/v1", ExchangeError),
    ],
)
def test_no_connection_is_told_apart(services, base, kind):
    with pytest.raises(kind):
        ask(services, base=base)
