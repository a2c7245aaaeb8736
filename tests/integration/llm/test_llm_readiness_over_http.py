"""The language model's readiness over real HTTP: no false yes, a bound on the whole of it, and few paid completions."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from scripted_services import Raw, ScriptedServices, answer_json, says

from voxint.llm import readiness
from voxint.llm.readiness import LlmReadiness

SINCE = datetime(2026, 11, 30, tzinfo=UTC)
LOADING = answer_json({"error": {"message": "Loading model", "code": 503}}, 503)


@pytest.fixture
def server():
    made = ScriptedServices()
    yield made
    made.close()


@pytest.fixture
def other():
    made = ScriptedServices()
    yield made
    made.close()


def completions(server):
    return len(server.asked["language_model"])


def test_a_completion_is_asked_until_it_first_succeeds_in_a_stay(server):
    probe = LlmReadiness(server.settings())
    assert probe.probe(SINCE).ready
    assert probe.probe(SINCE).ready
    assert completions(server) == 1
    assert probe.probe(SINCE + timedelta(hours=1)).ready
    assert completions(server) == 2
    assert server.asked["language_model"][0]["fields"]["max_tokens"] == 1


def test_after_a_failure_it_is_asked_again(server):
    probe = LlmReadiness(server.settings())
    assert probe.probe(SINCE).ready
    server.script["models"] = [LOADING]
    seen = probe.probe(SINCE)
    assert not seen.ready
    assert "loading" in seen.detail
    assert probe.probe(SINCE).ready
    assert completions(server) == 2


def test_a_list_that_answers_while_the_weights_load_is_no_yes(server):
    server.script["language_model"] = [LOADING, LOADING]
    probe = LlmReadiness(server.settings())
    assert not probe.probe(SINCE).ready
    assert not probe.probe(SINCE).ready
    assert probe.probe(SINCE).ready


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answer_json({"object": "list", "data": []}), "lists no model"),
        (answer_json({"error": {"message": "broken"}}), "broken"),
        (answer_json({"error": "no key"}, 401), "401"),
        (Raw(404, "nothing here"), "404"),
        (Raw(200, "<html>"), "no JSON"),
        (Raw(drop=True), "connection"),
    ],
)
def test_each_refusal_is_shown_as_what_it_is(server, answer, words):
    server.script["models"] = [answer]
    seen = LlmReadiness(server.settings()).probe(SINCE)
    assert not seen.ready
    assert words in seen.detail
    assert "llm " in seen.detail


@pytest.mark.parametrize("answer", [answer_json({"choices": None}), answer_json({"error": "x"}, 500), says("")])
def test_the_completion_decides(server, answer):
    server.script["language_model"] = [answer]
    assert LlmReadiness(server.settings()).probe(SINCE).ready is (answer.status == 200 and b'"content"' in answer.body)


def test_every_endpoint_must_answer_and_the_one_that_does_not_is_named(server, other):
    other.script["models"] = [LOADING]
    probe = LlmReadiness(server.settings(LLM_TRANSLATE_BASE_URL=other.url + "/v1"))
    seen = probe.probe(SINCE)
    assert not seen.ready
    assert seen.detail == "llm translate is loading (503: Loading model)"
    assert probe.probe(SINCE).ready


def test_nothing_to_ask_is_ready(server):
    assert LlmReadiness(server.settings(LLM_ENABLED="false")).probe(SINCE).ready
    assert server.asked["models"] == []


def test_nobody_there_is_said(server):
    settings = server.settings(
        LLM_BASE_URL="http://127.0.0.1:9/v1", LLM_ASSETS_BASE_URL="http://no-such-host.invalid/v1"
    )
    seen = LlmReadiness(settings).probe(SINCE)
    assert "connection refused" in seen.detail
    assert "not known" in seen.detail


@pytest.mark.parametrize(
    "slow", [Raw(200, '{"data": [{"id": "m"}]}', wait=60), Raw(200, '{"data": [{"id": "m"}]}' + " " * 100, drip=0.5)]
)
def test_the_whole_of_it_is_bounded(server, monkeypatch, slow):
    monkeypatch.setattr(readiness, "TOTAL", timedelta(seconds=1))
    server.always["models"] = slow
    begun = time.monotonic()
    seen = LlmReadiness(server.settings()).probe(SINCE)
    assert time.monotonic() - begun < 20
    assert not seen.ready


def test_all_are_asked_at_once(server, other):
    both = threading.Barrier(2)

    def waits_for_the_other(request):
        both.wait(60)
        return answer_json({"data": [{"id": "m"}]})

    server.script["models"] = [waits_for_the_other]
    other.script["models"] = [waits_for_the_other]
    assert LlmReadiness(server.settings(LLM_ENHANCE_BASE_URL=other.url + "/v1")).probe(SINCE).ready


def test_a_proxy_of_the_environment_is_not_asked(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "fe80::/10")
    assert LlmReadiness(server.settings()).probe(SINCE).ready


def test_the_token_is_sent_and_never_told(server):
    server.script["models"] = [answer_json({"error": "no"}, 401)]
    seen = LlmReadiness(server.settings(LLM_API_KEY="s3cret")).probe(SINCE)
    assert server.asked["models"][0]["headers"]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in seen.detail


def test_a_page_without_end_is_cut(server, monkeypatch):
    monkeypatch.setattr(readiness, "_LIMIT", 1000)
    server.script["models"] = [Raw(200, "x" * 100_000)]
    assert "larger" in LlmReadiness(server.settings()).probe(SINCE).detail
