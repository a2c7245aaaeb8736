"""Uploads: names, sizes, speeds, clients that go away. A real server on loopback where the connection itself matters."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import uvicorn
from console_client import BASE
from made_wav import made_wav
from ports import free_port
from sqlalchemy import text

from voxint.console import uploads

ORIGIN = {"origin": BASE}


@pytest.fixture
def sound(tmp_path):
    return made_wav(tmp_path / "talk.wav", 1).read_bytes()


def runs_in(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT id, title, source, source_kind FROM run ORDER BY id")).all()


def left(tmp_path):
    folder = tmp_path / uploads.FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def send(browser, name, body, **fields):
    data = {"token": browser.token(), **fields}
    return browser.post("/uploads", data=data, files={"file": (name, body)}, headers=ORIGIN)


def test_an_upload_is_queued_under_a_name_of_our_own(console, engine, tmp_path, sound):
    browser = console()
    answer = send(browser, "My talk.wav", sound, language="en", speakers="2-3")
    assert answer.status_code == 303, answer.text
    [run] = runs_in(engine)
    assert (run.title, run.source_kind) == ("My talk", "upload")
    assert left(tmp_path) == [run.source.rpartition("/")[2]]
    assert run.source.startswith(str(tmp_path / uploads.FOLDER))
    assert "Recording 1 is queued: My talk" in browser.get("/").text
    assert browser.parts.run_store.get(1).speakers_max == 3


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("../../../tmp/pwn.mp4", "pwn"),
        ("/etc/cron.d/x", "x"),
        ("..\\..\\x.wav", "x"),
        ("a/../../b", "b"),
        (".", "recording"),
        ("..", "recording"),
        ("%2e%2e%2fx.wav", "%2e%2e%2fx"),
        ("10:30 call.mp4", "10:30 call"),
        ("-y.mp4", "-y"),
        ("<img src=x onerror=alert(1)>.mp4", "<img src=x onerror=alert(1)>"),
        ("中" * 200 + ".wav", "中" * 200),
    ],
)
def test_whatever_name_is_sent_nothing_is_written_elsewhere(console, engine, tmp_path, sound, name, title):
    browser = console()
    assert send(browser, name, sound).status_code == 303
    [run] = runs_in(engine)
    assert run.title == title
    [kept] = left(tmp_path)
    assert kept.removesuffix(uploads.ENDING).isalnum()
    page = browser.get("/").text
    assert "<img src=x" not in page


def test_what_is_no_recording_is_refused_by_its_own_name_and_leaves_nothing(console, engine, tmp_path):
    browser = console()
    answer = send(browser, "letter.wav", b"Dear Mara")
    assert answer.status_code == 422
    assert "letter.wav" in answer.text
    assert str(tmp_path) not in answer.text
    assert send(browser, "nothing.wav", b"").status_code == 422
    assert browser.post("/uploads", data={"token": browser.token()}, files={"x": ("", b"")}).status_code == 422
    assert runs_in(engine) == []
    assert left(tmp_path) == []


def test_the_same_form_twice_is_one_recording(console, engine, tmp_path, sound):
    browser = console()
    for _ in range(2):
        assert send(browser, "talk.wav", sound, once="0123").status_code == 303
    assert len(runs_in(engine)) == 1
    assert len(left(tmp_path)) == 1
    assert send(browser, "talk.wav", sound, once="4567").status_code == 303
    sources = [run.source for run in runs_in(engine)]
    assert len(set(sources)) == 2, "each has a file of its own"


def test_an_upload_without_the_form_s_token_is_refused_before_its_file(console, engine, tmp_path, sound):
    browser = console()
    for token in ("", "0" * 64):
        answer = browser.post("/uploads", data={"token": token}, files={"file": ("t.wav", sound)}, headers=ORIGIN)
        assert answer.status_code == 403
    evil = {"origin": "http://evil.example"}
    assert (
        browser.post(
            "/uploads", data={"token": browser.token()}, files={"file": ("t", sound)}, headers=evil
        ).status_code
        == 403
    )
    assert browser.post("/uploads", content=b"x", headers={**ORIGIN, "content-type": "text/plain"}).status_code == 415
    assert runs_in(engine) == []
    assert left(tmp_path) == []


def test_an_upload_that_is_too_large_is_told_so(console, engine, tmp_path, sound):
    browser = console(UPLOAD_MAX_BYTES="20000")
    answer = send(browser, "talk.wav", sound)
    assert answer.status_code == 413
    assert "at most 19.5 kB" in answer.text
    assert browser.post("/uploads", headers={**ORIGIN, "content-length": str(3 << 30)}, content=b"").status_code in {
        413,
        415,
    }
    assert left(tmp_path) == []


def test_a_disk_without_room_is_told_so(console, engine, tmp_path, sound, monkeypatch):
    monkeypatch.setattr(uploads, "SPARE_BYTES", 1 << 60)
    browser = console()
    answer = send(browser, "talk.wav", sound)
    assert answer.status_code == 507
    assert "not enough room" in answer.text
    assert runs_in(engine) == []


def test_the_spare_room_is_left_also_by_uploads_that_fill_the_disk_together(
    console, engine, tmp_path, sound, monkeypatch
):
    browser = console()
    free = iter([uploads.SPARE_BYTES * 100, uploads.SPARE_BYTES])
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=next(free)))
    answer = send(browser, "talk.wav", sound)  # there was room when it began; another one took it meanwhile
    assert answer.status_code == 507
    assert "not enough room" in answer.text
    assert runs_in(engine) == []
    assert left(tmp_path) == []


def test_an_upload_that_waits_is_kept_where_the_media_folder_has_another_path_now(console, tmp_path, sound):
    browser = console()
    send(browser, "talk.wav", sound)
    [kept] = left(tmp_path)
    os.utime(tmp_path / uploads.FOLDER / kept, (1, 1))
    other_path = tmp_path / "moved"
    other_path.symlink_to(tmp_path)
    uploads.Intake(other_path, 1).sweep(browser.parts.run_store)
    assert left(tmp_path) == [kept]


def test_what_a_killed_console_left_goes_away_and_a_recording_s_own_file_stays(console, engine, tmp_path, sound):
    browser = console()
    send(browser, "talk.wav", sound)
    [kept] = left(tmp_path)
    stray = tmp_path / uploads.FOLDER / "0123.part"
    fresh = tmp_path / uploads.FOLDER / "4567.part"
    for path in (stray, fresh):
        path.write_bytes(b"x")
    for path in (stray, tmp_path / uploads.FOLDER / kept):
        os.utime(path, (1, 1))
    uploads.Intake(tmp_path, 1).sweep(browser.parts.run_store)
    assert left(tmp_path) == sorted([kept, "4567.part"])


def test_a_recording_by_address_or_path_only_from_where_it_may_come(console, engine, tmp_path, sound):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "good.wav").write_bytes(sound)
    (tmp_path / "other.wav").write_bytes(sound)
    (inbox / "link.wav").symlink_to(tmp_path / "other.wav")
    browser = console()
    assert browser.send("/runs", source=str(inbox / "good.wav"), title="Given").status_code == 303
    for source in (tmp_path / "other.wav", inbox / ".." / "other.wav", inbox / "link.wav", "good.wav", "/etc/passwd"):
        answer = browser.send("/runs", source=str(source))
        assert answer.status_code == 422
        assert "must be a whole one, below" in answer.text
    assert browser.send("/runs", source="http://127.0.0.1:9/x.wav").status_code == 422
    assert [run.title for run in runs_in(engine)] == ["Given"]


@pytest.fixture
def served(console):
    """A console on a port of loopback, and a browser that is signed in at it."""
    browser = console()
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(browser.http.app, host="127.0.0.1", port=port, log_config=None, lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < until
        time.sleep(0.02)
    yield browser, port
    server.should_exit = True
    server.force_exit = True
    thread.join(20)


def head(browser, port, length):
    cookie = f"voxint-8080={browser.cookies['voxint-8080']}"
    lines = [
        "POST /uploads HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Cookie: {cookie}",
        "Accept: application/json",
        "Content-Type: multipart/form-data; boundary=edge",
        f"Content-Length: {length}",
        "",
        "",
    ]
    token = browser.token()
    body = (
        f'--edge\r\nContent-Disposition: form-data; name="token"\r\n\r\n{token}\r\n'
        '--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    )
    return "\r\n".join(lines).encode() + body.encode()


def test_a_client_that_goes_away_leaves_no_half_recording(served, engine, tmp_path, sound, eventually):
    browser, port = served
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head(browser, port, 10_000_000) + sound)
        eventually(lambda: left(tmp_path), 30, "it was never begun")
    eventually(lambda: left(tmp_path) == [], 30, "a half file was left")
    assert runs_in(engine) == []


def test_a_client_that_promises_more_than_it_sends_is_told_and_others_are_served(
    served, engine, tmp_path, eventually, monkeypatch
):
    monkeypatch.setattr(uploads, "STALLED_SECONDS", 1.0)
    browser, port = served
    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(uploads.AT_ONCE // 2):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.settimeout(60)
            client.sendall(head(browser, port, 1 << 30) + b"ten bytes.")
            slow.append(client)
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.settimeout(60)
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in other.recv(4000)
        for client in slow:
            assert b" 408 " in client.recv(4000).split(b"\r\n")[0]
    eventually(lambda: left(tmp_path) == [], 30, "a half file was left")
    assert runs_in(engine) == []


def test_an_upload_over_a_real_connection(served, engine, sound):
    browser, port = served
    tail = b"\r\n--edge--\r\n"
    start = head(browser, port, 0)
    body = start.partition(b"\r\n\r\n")[2]
    whole = head(browser, port, len(body) + len(sound) + len(tail)) + sound + tail
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(60)
        client.sendall(whole)
        answer = b""
        while b"}" not in answer:
            part = client.recv(4000)
            assert part, answer
            answer += part
    assert b" 201 " in answer.split(b"\r\n")[0], answer
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["run"] == 1
    assert len(runs_in(engine)) == 1
