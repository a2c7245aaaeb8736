"""RUN_WEBHOOK_URL: told once of each end of a recording, again while it is not taken, and never of old ones."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from console_client import settings_for
from sqlalchemy import text
from stored_phase import add_recordings

from voxint.alerts import finished, webhook
from voxint.wiring import make


@pytest.fixture
def hook():
    got, status = [], [204]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if status[0] < 400:
                got.append(body)
            self.send_response(status[0])
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.got, server.status = got, status
    server.url = f"http://127.0.0.1:{server.server_port}/a-secret-path"
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def make_parts(tmp_path, database_url, redis_url, monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT", timedelta(seconds=60))  # a busy machine answers late
    made = []

    def with_hook(url):
        more = {"RUN_WEBHOOK_URL": url} if url else {}
        made.append(make(settings_for(database_url, redis_url, tmp_path, **more)))
        return made[-1]

    yield with_hook
    for parts in made:
        parts.close()


def end(engine, run_id, status="done"):
    error = "'no sound'" if status == "failed" else "NULL"
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE run SET status = :status, error = {error}, finished_at = voxint_now() WHERE id = :id"),
            {"status": status, "id": run_id},
        )


def later(engine, seconds):
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE run_told SET tried_at = tried_at - interval '{seconds} seconds' WHERE NOT told")
        )


def test_each_end_is_told_once(make_parts, engine, hook):
    parts = make_parts(hook.url)
    one, two, three = add_recordings(engine, 3, title="talk <b>")
    end(engine, one)
    end(engine, two, "failed")
    end(engine, three, "cancelled")
    assert finished.tell(parts) == 2
    assert finished.tell(parts) == 0
    assert [(each["event"], each["run"], each["error"]) for each in hook.got] == [
        ("run.done", one, None),
        ("run.failed", two, "no sound"),
    ]
    assert hook.got[0]["title"] == "talk <b>"
    end(engine, two)  # it was requeued, and ends again
    assert finished.tell(parts) == 1
    assert hook.got[-1]["event"] == "run.done"


def test_what_is_not_taken_is_told_again_later_and_the_address_stands_in_no_log(make_parts, engine, hook, caplog):
    parts = make_parts(hook.url)
    [run] = add_recordings(engine)
    end(engine, run)
    hook.status[0] = 500
    assert finished.tell(parts) == 0
    hook.status[0] = 204
    assert finished.tell(parts) == 0, "not at once"
    later(engine, 120)
    assert finished.tell(parts) == 1
    assert len(hook.got) == 1
    assert "answered 500" in caplog.text
    assert "a-secret-path" not in caplog.text


def test_an_end_does_not_wait_for_a_clock_that_was_set_back(make_parts, engine, hook):
    parts = make_parts(hook.url)
    [run] = add_recordings(engine)
    end(engine, run)
    hook.status[0] = 500
    assert finished.tell(parts) == 0
    later(engine, -86_400)
    hook.status[0] = 204
    assert finished.tell(parts) == 1


def test_two_at_the_same_moment_tell_it_once(make_parts, engine, hook):
    parts = make_parts(hook.url)
    [run] = add_recordings(engine)
    end(engine, run)
    told = []
    other = threading.Thread(target=lambda: told.append(finished.tell(parts)))
    with engine.begin() as first:
        first.execute(
            text(
                "INSERT INTO run_told (run_id, finished_at, tried_at, attempts)"
                " SELECT id, finished_at, voxint_now(), 1 FROM run WHERE id = :run"
            ),
            {"run": run},
        )
        other.start()
        until_somebody_waits_for_a_lock(engine)
    other.join(60)
    assert told == [0]
    assert hook.got == []


def until_somebody_waits_for_a_lock(engine):
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with engine.connect() as connection:
            if connection.execute(text(query)).scalar_one():
                return
        time.sleep(0.02)
    raise AssertionError("nobody waited")


def test_nobody_is_told_of_what_ended_before_it_was_set(make_parts, engine, hook):
    old, new = add_recordings(engine, 2)
    end(engine, old)
    assert finished.tell(make_parts(None)) == 0
    end(engine, new)
    assert finished.tell(make_parts(hook.url)) == 1
    assert [each["run"] for each in hook.got] == [new]
