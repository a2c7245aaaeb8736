"""The console's pages over a real database, as a browser would ask for them, and as other people's pages would."""

from __future__ import annotations

from datetime import timedelta

import pytest
from answering import answering, http
from sqlalchemy import text
from stored_phase import add_recordings, store_phase

from voxint.db.engine import make_engine

EVIL = "<img src=x onerror=alert(1)> {{ 7*7 }} [/red]"
PAGES = ("/", "/speakers", "/settings/status", "/settings/sign-in", "/settings/record")


def test_the_first_page_shows_banner_phase_and_recordings(console, engine):
    store_phase(engine, "llm", age=timedelta(minutes=2))
    add_recordings(engine, 3)
    page = console().get("/")
    assert page.status_code == 200
    assert (
        "Waiting for the GPU. 3 recordings are queued; the GPU is serving the language model until the next audio"
        " window." in page.text
    )
    assert "<title>Waiting for the GPU - 0 in progress, 3 queued - Voxint</title>" in page.text
    assert "The language model has the GPU" in page.text
    assert page.text.count("waits for the GPU") == 3
    assert "<svg" in page.text
    assert "Who had the GPU from" in page.text


def test_a_stopped_task_is_an_alert_on_the_first_page(console, engine):
    store_phase(engine, "llm", ticked=timedelta(minutes=10))
    page = console().get("/").text
    assert 'role="alert"' in page
    assert "The GPU sharing task has not run since" in page


def test_without_a_row_and_with_sharing_off_there_is_a_page(console):
    assert "No phase is recorded yet" in console().get("/").text
    page = console(GPU_PHASE_ENABLED="false").get("/")
    assert page.status_code == 200
    assert "GPU sharing is off" in page.text


def test_whatever_is_not_ours_is_shown_as_text(console, engine):
    store_phase(engine, "error", last_error=EVIL, failures=1)
    add_recordings(engine, title=EVIL)
    with engine.begin() as connection:
        connection.execute(text("UPDATE run SET status = 'failed', error = :evil"), {"evil": EVIL})
    client = console()
    for path in ("/", "/settings/status"):
        page = client.get(path).text
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=alert(1)&gt; {{ 7*7 }} [/red]" in page


def test_older_recordings_are_on_the_next_page(console, engine):
    store_phase(engine, "llm")
    add_recordings(engine, 51)
    client = console()
    first = client.get("/").text
    assert first.count("data-run=") == 50
    assert 'href="/?before=2"' in first
    second = client.get("/?before=2").text
    assert second.count("data-run=") == 1
    assert "Older recordings" not in second
    assert "on this page" in client.get("/?before=1").text


def test_the_status_page_has_doctors_rows(console, engine):
    store_phase(engine, "llm")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause, reason, seconds) VALUES"
                " (voxint_now() - interval '1 hour', 'releasing', 'llm', 'released', null, 3)"
            )
        )
    page = console().get("/settings/status").text
    for name in ("settings", "database", "redis", "gpu sharing", "service whisper", "broker", "media folder"):
        assert f'<th scope="row">{name}</th>' in page
    assert "the broker had the language model running again" in page
    assert "check" in page.split("<title>")[1].split("</title>")[0]


def test_the_status_page_has_a_column_for_the_device_of_each_service(console, engine):
    store_phase(engine, "audio")
    says = {device: http("200 OK", f'{{"status": "ok", "device": "{device}"}}'.encode()) for device in ("cuda", "cpu")}
    with answering(says["cuda"]) as cuda, answering(says["cpu"]) as cpu:
        urls = {"WHISPER_URL": cpu, "PYANNOTE_URL": cuda, "TITANET_URL": cuda}
        page = console(COMPUTE_TIER="gpu", **urls).get("/settings/status").text
        without = console(COMPUTE_TIER="simulated", **urls).get("/settings/status").text
    assert '<th scope="col">Runs on</th>' in page
    for name, device in (("service whisper", "cpu"), ("service pyannote", "cuda"), ("placement whisper", "cpu")):
        row = page.split(f'<th scope="row">{name}</th>')[1].split("</tr>")[0]
        assert f'<td data-label="Runs on">{device}</td>' in row
    assert "runs on cpu, expected cuda" in page
    assert "Runs on" not in without, "nothing is expected there, so nothing is asked"


def test_a_database_that_is_away_is_a_page_in_words(console):
    client = console(signed_in=False, DATABASE_URL="postgresql://me:hush@127.0.0.1:9/voxint")
    client.cookies.set("voxint-8080", "a-token-of-a-time-when-it-was-there")
    page = client.get("/")
    assert page.status_code == 503
    assert "Cannot reach the database at 127.0.0.1:9/voxint" in page.text
    assert "hush" not in page.text
    assert client.get("/healthz").text == "ok"


def test_who_was_signed_in_sees_what_is_wrong_while_the_database_is_away(console, monkeypatch):
    client = console()
    assert client.get("/").status_code == 200
    away = make_engine("postgresql://me:hush@127.0.0.1:9/voxint")
    for part in (client.parts.access, client.parts.phase_store):
        monkeypatch.setattr(part, "_engine", away)
    status = client.get("/settings/status")
    assert status.status_code == 200
    assert '<th scope="row">database</th>' in status.text
    assert "hush" not in status.text
    assert console(signed_in=False).get("/").status_code == 303


@pytest.mark.parametrize(
    "path", ["/nothing", "/static/../app.py", "/static/%2e%2e/app.py", "/?before=x", "/?before=-1"]
)
def test_what_is_not_there_is_refused_in_words(console, path):
    page = console().get(path)
    assert page.status_code in {400, 404}
    assert "import" not in page.text


def test_every_answer_carries_the_security_headers(console):
    client = console()
    for path in ("/", "/healthz", "/nothing", "/static/voxint.css"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert client.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_another_host_name_is_refused(console, host):
    client = console()
    assert client.get("/", headers={"host": host}).status_code == 400
    assert client.get("/healthz", headers={"host": host}).status_code == 400
    assert client.get("/", headers={"host": "localhost:8080"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_a_page_of_another_site_cannot_post(console, headers):
    assert console().post("/", headers=headers).status_code == 403


def test_nothing_changes_by_a_get_and_no_page_takes_a_post(console):
    client = console()
    for path in PAGES:
        assert client.post(path, headers={"origin": "http://127.0.0.1:8080"}).status_code == 405


def test_the_pages_hold_no_script_or_style_of_their_own(console, engine):
    store_phase(engine, "audio")
    add_recordings(engine, 1)
    client = console()
    for path in ("/", "/settings/status"):
        page = client.get(path).text
        assert "<script>" not in page
        assert "style=" not in page
        assert "onclick" not in page
        assert "http://" not in page.replace("http://127.0.0.1:9", "").replace("http://whisper", "").replace(
            "http://pyannote", ""
        ).replace("http://titanet", "")


def test_metrics_come_from_the_history(console, engine):
    store_phase(engine, "audio", age=timedelta(minutes=1))
    add_recordings(engine, 2)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gpu_phase_event (at, from_phase, to_phase, cause, seconds) VALUES"
                " (voxint_now(), null, 'llm', 'first_tick', null), (voxint_now(), 'acquiring', 'llm', 'refused', 2.5)"
            )
        )
    answer = console().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = answer.text.splitlines()
    assert 'voxint_gpu_phase{phase="audio"} 1' in told
    assert 'voxint_lane_waiting{lane="gpu"} 2' in told
    assert 'voxint_gpu_phase_seconds_total{phase="acquiring"} 2.5' in told
    assert "voxint_gpu_phase_failed_steps_total 1" in told
