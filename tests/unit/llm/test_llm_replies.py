"""Odd answers of language models: a typed failure with the server's own words, never a crash, never a false success."""

from __future__ import annotations

import json

import pytest

from voxint.llm.answers import json_in, without_thinking
from voxint.llm.client import LlmBusyError, LlmError, LlmTooLongError, LlmUnusableError, api_url, reply_in
from voxint.llm.readiness import completion_problem, list_problem
from voxint.services.exchange import Answer


def answer(status, body, **headers):
    return Answer(status, headers, (body if isinstance(body, str) else json.dumps(body)).encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<think>a {"x":1}</think>\n```json\n{"ok":true}\n```\n', {"ok": True}),
        ('<THINK>a</THINK>{"ok":true}', {"ok": True}),
        ('Sure, here it is:\n```json\n{"ok": true}\n```\nAnything else?', {"ok": True}),
        ('Here: {"ok": true} as you asked.', {"ok": True}),
        ('{"ok": true}', {"ok": True}),
        ("[1, 2]", [1, 2]),
        ('{"text": "he said <think>wait</think> aloud"}', {"text": "he said <think>wait</think> aloud"}),
        ('{"n": NaN}', {"n": None}),
        ('The form is {"x": 1}.\n</think>\n\n{"ok": true}', {"ok": True}),
        ('Maybe\n```json\n{"x": 1}\n```\n</think>\n```json\n{"ok": true}\n```', {"ok": True}),
        ('Here: {"text": "he said </think> aloud"}', {"text": "he said </think> aloud"}),
        ('{"x": 1}</think>[]', []),
    ],
)
def test_json_is_found_in_what_stands_around_it(text, value):
    assert json_in(text) == value


@pytest.mark.parametrize(
    "text", ['<think>a {"x":1}', 'a {"x":1}</think>{"li', "<Think> still", '{"a": ', "no", "", "{" * 5000]
)
def test_what_is_cut_off_is_no_empty_success(text):
    with pytest.raises(ValueError, match=r"cut off|no JSON"):
        json_in(text)


def test_tags_that_were_spoken_survive():
    assert without_thinking("He said <think>no</think>.") == "He said <think>no</think>."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "ctx shift failed"}}, "ctx shift failed"),
        ({"choices": None}, "without a text"),
        ({"choices": []}, "without a text"),
        ({"choices": [None]}, "without a text"),
        ({"choices": [{"message": {"content": None, "reasoning_content": "x"}}]}, "without a text"),
        ({"choices": [{"message": {"content": []}}]}, "without a text"),
        ("<html>sign in</html>", "no JSON"),
        ("[1]", "no object"),
        ("", "no JSON"),
    ],
)
def test_200_without_a_text_is_a_failure_with_the_servers_words(body, words):
    with pytest.raises(LlmUnusableError, match=words):
        reply_in(answer(200, body))


def test_a_list_of_parts_is_joined():
    reply = reply_in(
        answer(200, {"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]})
    )
    assert reply.text == "ab"


def test_a_cut_answer_and_its_counts_are_seen():
    body = {
        "model": "m",
        "usage": {"prompt_tokens": 12, "completion_tokens": 34},
        "choices": [{"message": {"content": "a"}, "finish_reason": "length"}],
    }
    reply = reply_in(answer(200, body))
    assert (reply.cut, reply.model, reply.prompt_tokens, reply.completion_tokens) == (True, "m", 12, 34)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (503, {"error": {"message": "Loading model"}}, LlmBusyError),
        (429, {"error": "slow down"}, LlmBusyError),
        (400, {"error": {"message": "exceeds the available context size"}}, LlmTooLongError),
        (200, {"error": {"message": "This model's maximum context length is 4096 tokens"}}, LlmTooLongError),
        (401, {"error": {"message": "bad key"}}, LlmError),
        (500, "oops", LlmError),
    ],
)
def test_refusals_are_told_apart(status, body, kind):
    with pytest.raises(kind) as caught:
        reply_in(answer(status, body))
    assert type(caught.value) is kind


def test_an_answer_asks_for_time():
    with pytest.raises(LlmBusyError) as caught:
        reply_in(answer(503, "{}", **{"retry-after": "120"}))
    assert caught.value.retry_in.total_seconds() == 120


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, {"object": "list", "data": []}, "lists no model"),
        (200, {"error": {"message": "nope"}}, "nope"),
        (200, "<html>", "no JSON"),
        (200, {"data": None}, "no list"),
        (200, [], "no list"),
        (401, {"error": "who are you"}, "401.*who are you.*LLM_API_KEY"),
        (404, "", "404.*path"),
        (500, "", "500"),
        (503, {"error": {"message": "Loading model"}}, "loading.*Loading model"),
    ],
)
def test_a_model_list_that_says_no_is_shown_as_what_it_is(status, body, words):
    import re

    assert re.search(words, list_problem(answer(status, body)))


def test_a_model_list_with_a_model_says_nothing_against_it():
    assert list_problem(answer(200, {"data": [{"id": "m", "meta": None}]})) is None


def test_a_model_that_thinks_first_has_answered():
    thinking = {"choices": [{"message": {"content": None, "reasoning_content": "Hm"}, "finish_reason": "length"}]}
    assert completion_problem(answer(200, thinking)) is None
    assert completion_problem(answer(200, {"choices": []})) is not None


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/v1/models"),
        ("http://h:1/", "http://h:1/v1/models"),
        ("http://h:1/v1", "http://h:1/v1/models"),
        ("http://h:1/openai/v1/", "http://h:1/openai/v1/models"),
    ],
)
def test_addresses(base, url):
    assert api_url(base, "/models") == url
