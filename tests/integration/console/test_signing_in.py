"""Signing in and out, and what nobody may do who has not: password, links, sessions, forms, limits."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from console_client import BASE, PASSWORD, Browser, settings_for
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from stored_phase import add_recordings, store_phase

from voxint.access import passwords
from voxint.access.passwords import BusyError
from voxint.console.attempts import MOST_FAILURES
from voxint.console.server import begin
from voxint.db.engine import make_engine
from voxint.settings import SettingsError
from voxint.wiring import make


@pytest.fixture
def with_password(console):
    browser = console(signed_in=False, CONSOLE_PASSWORD=PASSWORD)
    begin(browser.parts, "127.0.0.1")
    return browser


def attempt(browser, password, **more):
    fields = {"token": browser.token("/sign-in"), "password": password, "next": "/", **more}
    return browser.post("/sign-in", data=fields)


@pytest.mark.parametrize(
    "path", ["/", "/runs/1", "/runs/1/sound", "/runs/1/transcript", "/speakers", "/settings/status", "/no/such/page"]
)
def test_no_page_is_shown_before_the_sign_in(console, engine, path):
    store_phase(engine, "llm")
    add_recordings(engine, title="a secret title")
    answer = console(signed_in=False).get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in")
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/gpu/release", "/uploads", "/runs", "/runs/1/delete", "/settings/password"])
def test_no_form_is_taken_before_the_sign_in(console, path):
    browser = console(signed_in=False)
    token = browser.token("/sign-in?link=x")
    assert browser.post(path, data={"token": token}).status_code == 401
    assert browser.get("/", headers={"x-voxint-refresh": "1"}).status_code == 401


def test_healthz_and_metrics_need_no_sign_in(console, engine):
    store_phase(engine, "llm")
    browser = console(signed_in=False)
    assert browser.get("/healthz").status_code == 200
    assert browser.get("/metrics").status_code == 200


def test_every_route_but_those_named_asks_for_a_sign_in(console):
    from voxint.console.door import OPEN

    browser, tried = console(signed_in=False), 0
    for route in browser.http.app.routes:
        path = getattr(route, "path", "").replace("{run_id}", "1").replace("{speaker_id}", "1").replace("{name}", "w")
        if path in OPEN or path.startswith(("/static", "/api")):
            continue
        for method in getattr(route, "methods", None) or ["GET"]:
            assert browser.request(method, path).status_code in {303, 401}, (method, path)
            tried += 1
    assert tried > 20


def test_the_password_signs_in_and_stands_nowhere(with_password, engine, caplog):
    caplog.set_level(logging.DEBUG)
    answer = attempt(with_password, PASSWORD, who="Anna", next="/speakers")
    assert (answer.status_code, answer.headers["location"]) == (303, "/speakers")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert with_password.get("/").status_code == 200
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT row_to_json(s)::text FROM console_session s UNION ALL SELECT row_to_json(p)::text FROM console_password p"
            )
        ).scalars()
        stored = "\n".join(rows)
    assert "$argon2id$" in stored
    assert PASSWORD not in stored + caplog.text + repr(with_password.parts.settings)
    assert with_password.cookies["voxint-8080"] not in stored


def test_over_tls_the_cookie_is_for_tls_alone(tmp_path, database_url, redis_url):
    parts = make(settings_for(database_url, redis_url, tmp_path))
    browser = Browser(parts)
    browser.http.base_url = "https://127.0.0.1:8080"
    link = parts.access.make_link()
    answer = browser.post("/sign-in", data={"token": browser.token(f"/sign-in?link={link}"), "link": link})
    assert "Secure" in answer.headers["set-cookie"]
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    browser.close()
    parts.close()


def test_a_wrong_password_is_refused_and_after_a_few_the_address_waits(with_password):
    for _ in range(5):
        answer = attempt(with_password, "wrong horse battery")
        assert answer.status_code == 403
        assert "This is not the password" in answer.text
    for password in ("wrong horse battery", PASSWORD):
        answer = attempt(with_password, password)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 301
    assert with_password.get("/").status_code == 303


def test_guesses_at_the_same_moment_are_no_more_than_guesses_one_by_one(with_password, monkeypatch, eventually):
    browser, looked_into, go_on = with_password, [], threading.Event()

    def slow(given):
        looked_into.append(given)
        go_on.wait(600)

    monkeypatch.setattr(browser.parts.access, "proof", slow)
    sent = {"token": browser.token("/sign-in"), "password": "a wrong guess", "next": "/"}
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(browser.post, "/sign-in", data=sent) for _ in range(12)]
        try:
            eventually(lambda: sum(answer.done() for answer in answers) == 12 - MOST_FAILURES)
        finally:
            go_on.set()
    assert sorted(answer.result().status_code for answer in answers) == [403] * MOST_FAILURES + [429] * 7
    assert len(looked_into) == MOST_FAILURES


@pytest.mark.parametrize("error", [BusyError("too many sign-ins"), OperationalError("SELECT 1", {}, Exception("away"))])
def test_a_password_that_could_not_be_looked_into_is_no_failure(with_password, monkeypatch, error):
    browser = with_password

    def busy(_given):
        raise error

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(browser.parts.access, "proof", busy)
        sent = {"token": browser.token("/sign-in"), "password": PASSWORD, "next": "/"}
        statuses = [browser.post("/sign-in", data=sent).status_code for _ in range(MOST_FAILURES + 1)]
    assert statuses == [503] * (MOST_FAILURES + 1)
    assert browser.post("/sign-in", data=sent).status_code == 303


def test_a_link_signs_in_once(console):
    browser = console(signed_in=False)
    link = browser.parts.access.make_link()
    page = browser.get(f"/sign-in?link={link}")
    assert "once" in page.text
    fields = {"token": browser.token(f"/sign-in?link={link}"), "link": link}
    assert browser.post("/sign-in", data=fields).status_code == 303
    assert browser.get("/").status_code == 200
    other = console(signed_in=False)
    fields["token"] = other.token("/sign-in?link=x")
    again = other.post("/sign-in", data=fields)
    assert again.status_code == 403
    assert "was used, or is too old" in again.text


def shift(engine, length):
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS $$ SELECT clock_timestamp() + interval '{length.total_seconds()} seconds' $$"
            )
        )


def test_an_old_link_signs_nobody_in(console, engine):
    browser = console(signed_in=False)
    link = browser.parts.access.make_link()
    shift(engine, timedelta(minutes=16))
    fields = {"token": browser.token(f"/sign-in?link={link}"), "link": link}
    assert browser.post("/sign-in", data=fields).status_code == 403


def test_a_session_ends_without_use_and_a_page_that_refreshes_itself_is_no_use(console, engine):
    browser = console(CONSOLE_SESSION_SECONDS="3600")
    shift(engine, timedelta(minutes=50))
    assert browser.get("/", headers={"x-voxint-refresh": "1"}).status_code == 200
    shift(engine, timedelta(minutes=61))
    assert browser.get("/").status_code == 303


def test_use_keeps_a_session_for_two_weeks_and_no_longer(console, engine):
    browser = console()
    for day in range(14):
        shift(engine, timedelta(days=day, hours=-1) if day else timedelta(0))
        with engine.begin() as connection:
            connection.execute(text("UPDATE console_session SET used_at = voxint_now()"))
        assert browser.get("/speakers").status_code == 200
    shift(engine, timedelta(days=14, minutes=1))
    with engine.begin() as connection:
        connection.execute(text("UPDATE console_session SET used_at = voxint_now()"))
    assert browser.get("/speakers").status_code == 303


def test_signing_out_ends_the_session_also_for_who_copied_the_cookie(console):
    browser = console()
    copied = browser.cookies["voxint-8080"]
    assert browser.send("/sign-out").status_code == 303
    browser.cookies.set("voxint-8080", copied)
    assert browser.get("/").status_code == 303


def test_a_session_that_is_planted_before_the_sign_in_is_not_the_one_after_it(with_password):
    planted = {"cookie": "voxint-8080=planted"}
    page = with_password.get("/sign-in", headers=planted)
    assert page.status_code == 200
    answer = attempt(with_password, PASSWORD)
    assert "voxint-8080=" in answer.headers["set-cookie"]
    assert "planted" not in answer.headers["set-cookie"]
    assert with_password.get("/speakers", headers=planted).status_code == 303


def test_a_changed_password_ends_all_other_sessions(with_password, console):
    attempt(with_password, PASSWORD)
    other = console()
    assert other.get("/speakers").status_code == 200
    new = "another horse battery"
    wrong = with_password.send("/settings/password", password="no such password", new=new, again=new)
    assert wrong.status_code == 403
    short = with_password.send("/settings/password", password=PASSWORD, new="short", again="short")
    assert (short.status_code, "at least 8" in short.text) == (422, True)
    assert with_password.send("/settings/password", password=PASSWORD, new=new, again=new).status_code == 303
    assert with_password.get("/speakers").status_code == 200
    assert other.get("/speakers").status_code == 303
    assert with_password.parts.access.is_password(new)
    # The value that the setting had before changes nothing at the next start; another one does.
    with_password.parts.access.take_setting(PASSWORD)
    assert with_password.parts.access.is_password(new)
    with_password.parts.access.take_setting("a third horse battery")
    assert with_password.parts.access.is_password("a third horse battery")


def test_a_sign_in_by_the_old_password_does_not_outlive_its_change(with_password, monkeypatch):
    browser, real = with_password, passwords.matches

    def changed_meanwhile(stored, given):
        right = real(stored, given)
        monkeypatch.setattr(passwords, "matches", real)
        browser.parts.access.change_password("another horse battery", keep="")
        return right

    monkeypatch.setattr(passwords, "matches", changed_meanwhile)
    answer = attempt(browser, PASSWORD)
    assert answer.status_code == 403
    assert "This is not the password" in answer.text
    assert browser.parts.access.sessions() == ()
    assert attempt(browser, "another horse battery").status_code == 303


@pytest.mark.parametrize("ended_by", ["/sign-out", "/settings/sessions/end", "/settings/password"])
def test_a_session_that_was_ended_is_none_while_the_database_is_away(with_password, monkeypatch, ended_by):
    browser = with_password
    assert attempt(browser, PASSWORD).status_code == 303
    assert browser.get("/").status_code == 200
    ended = browser.cookies["voxint-8080"]
    if ended_by != "/sign-out":
        browser.cookies.delete("voxint-8080")
        assert attempt(browser, PASSWORD).status_code == 303
    new = "another horse battery"
    assert browser.send(ended_by, password=PASSWORD, new=new, again=new).status_code == 303
    monkeypatch.setattr(browser.parts.access, "_engine", make_engine("postgresql://127.0.0.1:9/voxint"))
    browser.cookies.clear()
    browser.cookies.set("voxint-8080", ended)
    assert browser.get("/settings/status").status_code == 503


def test_who_came_by_a_link_can_set_a_first_password(console):
    browser = console()
    assert "Set a password" in browser.get("/settings/sign-in").text
    new = "a first horse battery"
    assert browser.send("/settings/password", new=new, again=new).status_code == 303
    assert browser.parts.access.is_password(new)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.7", "voxint.example"])
def test_without_a_password_nobody_else_s_machine_reaches_the_console(console, bind):
    browser = console(signed_in=False)
    begin(browser.parts, "127.0.0.1")
    with pytest.raises(SettingsError, match="CONSOLE_PASSWORD: is needed"):
        begin(browser.parts, bind)


def test_a_password_that_is_none_is_refused_at_the_start_and_not_shown(console):
    browser = console(signed_in=False, CONSOLE_PASSWORD="hush")
    with pytest.raises(SettingsError, match="at least 8 characters") as caught:
        begin(browser.parts, "127.0.0.1")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/\n/evil.example"]
)
def test_the_sign_in_leads_to_no_other_site(with_password, target):
    assert attempt(with_password, PASSWORD, next=target).headers["location"] == "/"


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({"origin": "http://evil.example"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({"sec-fetch-site": "cross-site"}, {}, 403),
        ({"origin": BASE}, {"token": ""}, 403),
        ({"origin": BASE}, {"token": "0" * 64}, 403),
        ({"origin": BASE, "content-type": "text/plain"}, {}, 415),
        ({"origin": BASE, "content-type": "application/json"}, {}, 415),
    ],
)
def test_a_page_of_another_site_presses_no_button(console, engine, headers, fields, status):
    store_phase(engine, "llm")
    browser = console()
    sent = {"token": browser.token(), **fields}
    kind = headers.get("content-type")
    answer = (
        browser.post("/gpu/audio-now", content="token=" + sent["token"], headers=headers)
        if kind
        else browser.post("/gpu/audio-now", data=sent, headers=headers)
    )
    assert answer.status_code == status
    assert browser.parts.phase_store.pending_request() is None
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM gpu_phase_request")).scalar_one() == 0


def test_a_form_of_somebody_else_s_page_is_not_taken(console, engine):
    store_phase(engine, "llm")
    mine, theirs = console(), console()
    answer = mine.post("/gpu/release", data={"token": theirs.token()}, headers={"origin": BASE})
    assert answer.status_code == 403
    assert mine.parts.phase_store.pending_request() is None


def test_nothing_changes_by_a_get(console, engine):
    store_phase(engine, "llm")
    browser = console()
    for path in ("/gpu/audio-now", "/gpu/release", "/gpu/hold", "/runs/1/delete", "/sign-out", "/settings/password"):
        assert browser.get(path).status_code == 405
    assert browser.parts.phase_store.pending_request() is None


def test_a_form_has_a_largest_size(console):
    browser = console()
    answer = browser.post("/gpu/release", data={"token": browser.token(), "x": "y" * 300_000}, headers={"origin": BASE})
    assert answer.status_code == 413


def test_who_did_what_is_recorded(console, engine):
    store_phase(engine, "llm")
    browser = console()
    browser.send("/gpu/hold", hours="2")
    browser.send("/gpu/audio-now")
    request = browser.parts.phase_store.pending_request()
    assert request.requested_by == "Anna (console, testclient)"
    told = [(entry.who, entry.what) for entry in browser.parts.record.newest()]
    assert told[:2] == [
        ("Anna (console, testclient)", "asked for audio-now"),
        ("Anna (console, testclient)", "held switches off for 2 h"),
    ]
    page = browser.get("/settings/record").text
    assert "asked for audio-now" in page


def test_the_console_s_words_are_those_of_the_command_line(console, engine):
    from voxint.gpu_phase.model import RequestKind
    from voxint.gpu_phase.wording.requests import next_step

    store_phase(engine, "llm")
    browser = console()
    woken = browser.parts.settings.gpu_phase_follow_up_seconds > 0  # make test-no-wake-ups takes them away
    expected = next_step(RequestKind.AUDIO_NOW, look(browser), None, woken=woken)
    browser.send("/gpu/audio-now")
    page = browser.get("/").text
    assert expected[0].replace("'", "&#39;") in page
    assert expected[0].replace("'", "&#39;") not in browser.get("/").text, "it is said once"


def look(browser):
    from voxint.gpu_phase.status import look as look_at

    return look_at(browser.parts.phase_store, browser.parts.settings)


def test_with_sharing_off_there_are_no_buttons_and_a_form_is_refused(console):
    browser = console(GPU_PHASE_ENABLED="false")
    page = browser.get("/").text
    assert "/gpu/audio-now" not in page
    answer = browser.send("/gpu/release")
    assert answer.status_code == 409
    assert "GPU sharing is off" in answer.text
