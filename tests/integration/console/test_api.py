"""The HTTP API: its token, its answers, and that they are what its description says."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from made_day import SPEECH
from stored_phase import add_recordings, store_phase

TOKEN = "a-token-of-these-tests"
KNOWN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def api(console):
    return console(signed_in=False, API_TOKEN=TOKEN)


def test_without_the_token_there_is_nothing(console, api):
    for browser, headers in (
        (api, {}),
        (api, {"authorization": "Bearer wrong"}),
        (api, {"authorization": f"Basic {TOKEN}"}),
        (console(signed_in=False), KNOWN),
        (console(), {}),
    ):
        for path in ("/api/v1/openapi.json", "/api/v1/runs/1/transcript"):
            answer = browser.get(path, headers=headers)
            assert answer.status_code == 401
            assert set(answer.json()) == {"error"}


def test_who_guesses_tokens_waits(api):
    for _ in range(5):
        assert api.get("/api/v1/runs", headers={"authorization": "Bearer guess"}).status_code == 401
    assert api.get("/api/v1/runs", headers=KNOWN).status_code == 429


def test_a_recording_is_added_looked_at_and_told_without_paths(api, engine, tmp_path):
    store_phase(engine, "llm")
    sound = (SPEECH / "museum.ogg").read_bytes()
    made = api.post("/api/v1/uploads?name=../talk.ogg&language=en", content=sound, headers=KNOWN)
    assert made.status_code == 201, made.text
    assert (made.json()["title"], made.json()["source"], made.json()["status"]) == ("talk", "upload", "queued")
    assert str(tmp_path) not in made.text
    assert api.get(f"/api/v1/runs/{made.json()['id']}", headers=KNOWN).json() == made.json()
    assert api.get("/api/v1/runs?search=TALK", headers=KNOWN).json()["runs"] == [made.json()]
    assert api.post("/api/v1/uploads", content=b"Dear Mara", headers=KNOWN).status_code == 422
    for source, status in (("/etc/passwd", 422), ("http://127.0.0.1:9/x", 422)):
        assert api.post("/api/v1/runs", json={"source": source}, headers=KNOWN).status_code == status
    assert api.get("/api/v1/runs/1/transcript?format=srt", headers=KNOWN).status_code == 404
    assert api.get("/api/v1/runs/99", headers=KNOWN).status_code == 404
    assert api.parts.record.newest()[0].who == "API (testclient)"


def test_pages_of_recordings(api, engine):
    add_recordings(engine, 5)
    first = api.get("/api/v1/runs?limit=3", headers=KNOWN).json()
    assert [run["id"] for run in first["runs"]] == [5, 4, 3]
    assert api.get(f"/api/v1/runs?limit=3&before={first['before']}", headers=KNOWN).json()["before"] is None


@pytest.mark.timeout(300)
def test_every_answer_is_one_that_the_description_knows(api, engine):
    store_phase(engine, "llm")
    add_recordings(engine, 2)
    described = api.get("/api/v1/openapi.json", headers=KNOWN).json()
    schema = schemathesis.openapi.from_dict(described)
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for case in examples(operation.as_strategy(), 15):
            sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8080/api/v1")
            if isinstance(sent.get("data"), bytes):
                sent["content"] = sent.pop("data")
            sent["headers"] = {**dict(sent.get("headers") or {}), **KNOWN}
            answer = api.http.request(**{key: value for key, value in sent.items() if key != "cookies"})
            assert answer.status_code < 500, (operation.label, sent, answer.text)
            known = described["paths"][operation.path][operation.method]["responses"]
            assert str(answer.status_code) in known, (operation.label, answer.status_code, answer.text)
            tried += 1
    assert tried > 50


def examples(strategy, number):
    found = []

    @settings(
        max_examples=number, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(case):
        found.append(case)

    collect()
    return found
