"""Alerts on a real database and a real webhook: told once when they begin and once when they are over."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from sqlalchemy import text
from stored_phase import store_phase

from voxint.alerts import watch
from voxint.settings import SettingsError, load_settings
from voxint.wiring import make
from voxint.work import meter

URLS = {f"GPU_LEASE_{name}_URL": "http://127.0.0.1:9/gpu" for name in ("ACQUIRE", "RELEASE", "STATUS")}
MINUTE = timedelta(minutes=1)


class Hook:
    """A webhook that keeps what it is sent, and answers what it is told to."""

    def __init__(self):
        self.got = []
        self.status = 204
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if hook.status < 400:
                    hook.got.append(json.loads(body))
                self.send_response(hook.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/secret-path"

    def told(self):
        return [(message["event"], message["code"]) for message in self.got]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture
def hook():
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def parts(database_url, redis_url, hook, tmp_path):
    environ = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MEDIA_ROOT": str(tmp_path),
        "COMPUTE_TIER": "simulated",
        "GPU_PHASE_ENABLED": "true",
        "SERVICE_CONTROL": "process",
        "ALERT_WEBHOOK_URL": hook.url,
        **URLS,
    }
    made = make(load_settings(environ))
    yield made
    made.close()


def later(engine, span=timedelta(minutes=2)):
    """As if the alerts had been looked at that much earlier."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alert SET tried_at = tried_at - :span, since = since - :span"), {"span": span})


def test_an_error_is_told_once_and_its_end_once(parts, engine, hook):
    store_phase(engine, "error", last_error="out of memory", failures=1)
    for _ in range(3):
        watch.check(parts)
    assert hook.told() == [("raised", "error")]
    assert hook.got[0]["text"].startswith("Voxint: The GPU could not be handed back: out of memory.")
    assert hook.got[0]["since"].endswith("Z")
    store_phase(engine, "llm")
    for _ in range(3):
        watch.check(parts)
    assert hook.told() == [("raised", "error"), ("ended", "error")]
    store_phase(engine, "error", failures=1)
    watch.check(parts)
    assert hook.told()[2:] == [("raised", "error")]


def test_nothing_is_told_where_nothing_is_wrong(parts, engine, hook):
    for phase in ("llm", "acquiring", "audio", "releasing"):
        store_phase(engine, phase)
        watch.check(parts)
    assert hook.got == []


def test_a_stopped_task_and_a_language_model_that_stays_away_are_told(parts, engine, hook):
    store_phase(engine, "llm", ticked=10 * MINUTE)
    watch.check(parts)
    assert hook.told() == [("raised", "task_stopped")]
    now = parts.phase_store.now()
    store_phase(
        engine,
        "llm",
        note="the language model does not answer: llm connection refused",
        llm_checked_at=now,
        llm_silent_since=now - 20 * MINUTE,
    )
    watch.check(parts)
    assert hook.told()[1:] == [("raised", "llm_overdue"), ("ended", "task_stopped")] or hook.told()[1:] == [
        ("ended", "task_stopped"),
        ("raised", "llm_overdue"),
    ]
    assert "llm connection refused" in next(m for m in hook.got if m["code"] == "llm_overdue")["text"]


def test_a_phase_that_was_never_recorded_is_told_with_patience(parts, engine, hook):
    watch.check(parts)
    assert hook.got == []
    later(engine, 3 * MINUTE)
    watch.check(parts)
    assert hook.told() == [("raised", "no_phase")]


def test_a_webhook_that_is_away_gets_it_later_and_hears_nothing_of_what_is_over(parts, engine, hook, caplog):
    hook.status = 500
    store_phase(engine, "error", failures=1)
    watch.check(parts)
    watch.check(parts)
    assert "secret-path" not in caplog.text
    assert "the webhook answered 500" in caplog.text
    hook.status = 200
    watch.check(parts)
    assert hook.got == []
    later(engine)
    watch.check(parts)
    assert hook.told() == [("raised", "error")]

    hook.status = 500
    store_phase(engine, "llm")
    watch.check(parts)
    hook.status = 200
    store_phase(engine, "error", failures=1)
    watch.check(parts)
    assert hook.told() == [("raised", "error"), ("raised", "error")]  # its end may have arrived


def test_an_alert_does_not_wait_for_a_clock_that_was_set_back(parts, engine, hook):
    hook.status = 500
    store_phase(engine, "error", failures=1)
    watch.check(parts)
    later(engine, -timedelta(days=1))
    hook.status = 200
    watch.check(parts)
    assert hook.told() == [("raised", "error")]


def test_the_patience_with_a_phase_that_was_never_recorded_begins_anew_where_the_clock_was_set_back(
    parts, engine, hook
):
    watch.check(parts)
    later(engine, -timedelta(days=1))
    watch.check(parts)
    assert hook.got == []
    later(engine, 3 * MINUTE)
    watch.check(parts)
    assert hook.told() == [("raised", "no_phase")]


def test_an_alert_that_nobody_heard_of_is_forgotten_with_its_end(parts, engine, hook):
    hook.status = 500
    store_phase(engine, "error", failures=1)
    watch.check(parts)
    store_phase(engine, "llm")
    watch.check(parts)
    hook.status = 200
    later(engine)
    watch.check(parts)
    assert hook.got == []
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM alert")).scalar_one() == 0


def test_two_that_look_at_the_same_time_tell_it_once(parts, engine, hook):
    store_phase(engine, "error", failures=1)
    threads = [threading.Thread(target=watch.check, args=(parts,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert hook.told() == [("raised", "error")]


def test_the_webhook_s_address_is_checked_and_kept_secret():
    with pytest.raises(SettingsError, match="ALERT_WEBHOOK_URL: must be an http"):
        load_settings({"ALERT_WEBHOOK_URL": "ftp://hush"})
    assert "hush" not in repr(load_settings({"ALERT_WEBHOOK_URL": "http://h/hush"}))


def test_ticks_are_counted_and_a_redis_that_is_away_loses_nothing_else(parts):
    from voxint.gpu_phase.tick import Report

    client = parts.publisher.client
    assert meter.read(client) == meter.TickCounts(dict.fromkeys(meter.OUTCOMES, 0), 0, None)
    meter.record(client, Report("saved", 0.25))
    meter.record(client, Report("busy", 0.5))
    counts = meter.read(client)
    assert (counts.by_outcome["saved"], counts.by_outcome["busy"]) == (1, 1)
    assert (counts.seconds, counts.last_seconds) == (0.75, 0.5)
    away = make(load_settings({"REDIS_URL": "redis://127.0.0.1:9/0"}))
    meter.record(away.publisher.client, Report("saved", 1))
    away.close()
