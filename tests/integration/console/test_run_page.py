"""One recording's page, the speakers' page, the services' buttons: what they show, and what their forms do."""

from __future__ import annotations

import html
import json
import re
import time
from dataclasses import replace

import made_day
import pytest
from console_client import BASE
from sqlalchemy import text
from stored_phase import add_recordings, store_phase

from voxint.recordings.versions import freeze


@pytest.fixture
def made(engine, tmp_path):
    store_phase(engine, "llm")
    return made_day.made_recordings(engine, tmp_path)


def test_a_recording_that_is_done_shows_its_words_and_plays(console, made):
    browser = console()
    page = browser.get(f"/runs/{made}").text
    assert "<title>Museum: planning the new room - done - Voxint</title>" in page
    assert re.search(r'<span data-t="0.3">Welcome</span>', page)
    assert page.count('class="line"') == len(made_day.spoken())
    assert "The three plan the opening" in page
    sound = browser.get(f"/runs/{made}/sound", headers={"range": "bytes=0-99"})
    assert (sound.status_code, len(sound.content), sound.headers["content-type"]) == (206, 100, "audio/wav")


@pytest.mark.parametrize("form", ["txt", "srt", "vtt", "json", "md"])
def test_each_form_is_a_download_with_the_recording_s_name(console, made, form):
    answer = console().get(f"/runs/{made}/transcript?format={form}&language=de")
    assert answer.status_code == 200
    assert f"filename*=UTF-8''Museum-%20planning%20the%20new%20room.de.{form}" in answer.headers["content-disposition"]
    assert "Welcome to the meeting" in answer.text


@pytest.mark.parametrize(
    "path", ["?format=../../etc/passwd", "?format=exe", "?language=..%2f", "?version=99", "?language=fr"]
)
def test_a_form_of_a_transcript_that_is_none_is_refused(console, made, path):
    assert console().get(f"/runs/{made}/transcript{path}").status_code in {400, 404}
    assert console().get("/runs/..%2f/transcript").status_code in {400, 404}


def test_naming_a_speaker_is_a_new_version_and_stands_in_the_roster(console, made):
    browser = console()
    evil = "<b>Mara</b> Lind"
    answer = browser.send(f"/runs/{made}/speakers", label="SPEAKER_00", name=evil)
    assert answer.status_code == 303
    page = browser.get(f"/runs/{made}").text
    assert "&lt;b&gt;Mara&lt;/b&gt; Lind" in page
    assert "<b>Mara" not in page
    assert "2 versions" in page
    assert "&lt;b&gt;Mara&lt;/b&gt; Lind" in browser.get("/speakers").text
    assert "Mara" in browser.get(f"/runs/{made}?version=1").text
    assert browser.send(f"/runs/{made}/speakers", label="SPEAKER_99", name="x").status_code == 422


def test_speakers_are_named_and_merged(console, made):
    browser = console()
    known = {each.name: each.id for each in browser.parts.roster.list()}
    assert browser.send(f"/speakers/{known['Tom']}/name", name="Tom Berg").status_code == 303
    assert browser.send(f"/speakers/{known[None]}/merge", into=str(known["Tom"])).status_code == 303
    left = {each.name for each in browser.parts.roster.list()}
    assert left == {"Mara", "Tom Berg", "Ines"}
    merge = f"/speakers/{known['Tom']}/merge"
    wrong = [
        ("/speakers/999/name", {"name": "x"}),
        *((merge, {"into": into}) for into in ("x", "", "9" * 20, "9" * 5000)),
    ]
    for path, fields in wrong:
        assert browser.send(path, **fields).status_code == 422


def test_requeue_pressed_twice_is_refused_the_second_time(console, engine, made):
    browser = console()
    [failed] = [run.id for run in browser.parts.run_store.list(status="failed")]
    assert browser.send(f"/runs/{failed}/requeue").status_code == 303
    again = browser.send(f"/runs/{failed}/requeue")
    assert again.status_code == 409
    assert "cannot be requeued" in again.text
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM work_item WHERE run_id = :run AND state = 'queued'")
        assert connection.execute(query, {"run": failed}).scalar_one() == 1


def test_cancel_and_delete(console, made, tmp_path):
    browser = console()
    [queued, *_] = [run.id for run in browser.parts.run_store.list(status="queued")]
    assert browser.send(f"/runs/{queued}/cancel").status_code == 303
    assert browser.parts.run_store.get(queued).status == "cancelled"
    assert (tmp_path / "runs" / f"{made}-made").is_dir()
    assert browser.send(f"/runs/{made}/delete").status_code == 303
    assert not (tmp_path / "runs" / f"{made}-made").exists()
    assert browser.get(f"/runs/{made}").status_code == 404


def test_what_is_asked_of_the_language_model_is_queued_once(console, made):
    browser = console()
    assert browser.send(f"/runs/{made}/jobs", kind="translation", language="pt-br").status_code == 303
    assert "Translation (pt-br): <b>queued</b>" in browser.get(f"/runs/{made}").text
    assert browser.send(f"/runs/{made}/jobs", kind="translation", language="fr").status_code == 409
    assert browser.send(f"/runs/{made}/jobs", kind="lunch").status_code == 422


def test_one_job_is_cancelled_and_the_others_stay(console, made):
    browser = console()
    for fields in ({"kind": "run_assets"}, {"kind": "translation", "language": "de"}):
        assert browser.send(f"/runs/{made}/jobs", **fields).status_code == 303
    assert browser.get(f"/runs/{made}").text.count(f'action="/runs/{made}/jobs/cancel"') == 2
    assert browser.send(f"/runs/{made}/jobs/cancel", kind="run_assets").status_code == 303
    page = browser.get(f"/runs/{made}").text
    assert "Summary, chapters and action points: <b>cancelled</b>" in page
    assert "Translation (de): <b>queued</b>" in page
    assert page.count(f'action="/runs/{made}/jobs/cancel"') == 1
    again = browser.send(f"/runs/{made}/jobs/cancel", kind="run_assets")
    assert (again.status_code, "under way" in again.text) == (409, True)
    assert browser.send(f"/runs/{made}/jobs/cancel", kind="transcribe").status_code == 422
    assert browser.post(f"/runs/{made}/jobs/cancel", data={"kind": "translation"}).status_code == 403
    assert "cancelled run_assets" in browser.get("/settings/record").text


def test_a_recording_that_failed_on_its_way_shows_what_was_heard(console, engine, made):
    words = [{"text": " Good", "start": 0.1, "end": 0.4, "probability": None, "speaker": None}]
    with engine.begin() as connection:
        made_day._result(
            connection, 5, "transcribe", {"language": "en", "duration_seconds": 3, "model": "m", "segments": [words]}
        )
    page = console().get("/runs/5").text
    assert "This was heard so far" in page
    assert ">Good</span>" in page
    assert "pyannote answered 500" in page


def test_right_to_left_lines_keep_their_order_and_their_direction(console, engine, made):
    hebrew = "מה שלומך, Anna?"
    transcript = made_day.transcript(made)
    first = replace(transcript.lines[0], text=hebrew, words=())
    with engine.begin() as connection:
        freeze(connection, replace(transcript, lines=(first, *transcript.lines[1:])), "another")
    page = console().get(f"/runs/{made}").text
    assert hebrew in page
    assert 'dir="auto"' in page


def test_a_long_transcript_comes_in_parts(console, engine, made):
    transcript = made_day.transcript(made)
    lines = tuple(replace(transcript.lines[0], id=number) for number in range(1, 1348))
    with engine.begin() as connection:
        freeze(connection, replace(transcript, lines=lines), "a loop")
    browser = console()
    page = browser.get(f"/runs/{made}").text
    assert page.count('class="line"') == 1000
    assert "1347 lines in all" in page
    assert browser.get(f"/runs/{made}?from=1000").text.count('class="line"') == 347


def test_a_chapter_leads_to_its_line_also_on_another_part(console, engine, made):
    transcript = made_day.transcript(made)
    lines = tuple(replace(transcript.lines[0], id=number) for number in range(1, 1348))
    chapters = [{"line": line, "start": float(line), "text": f"at {line}"} for line in (4, 1000, 1001, 1347)]
    with engine.begin() as connection:
        freeze(connection, replace(transcript, lines=lines), "a loop")
        connection.execute(
            text("UPDATE stage_result SET data = data || CAST(:more AS jsonb) WHERE kind = 'run_assets'"),
            {"more": json.dumps({"chapters": chapters, "actions": chapters})},
        )
    browser = console()
    for part in ("", "?from=1000"):
        links = re.findall(r'<a href="([^"]+)" data-seek', browser.get(f"/runs/{made}{part}").text)
        for number in ("4", "1000", "1001", "1347"):
            mine = [html.unescape(link) for link in links if link.endswith(f"#line-{number}")]
            assert len(mine) >= 2, "a chapter and an action point"
            for link in set(mine):
                query = link.partition("#")[0]
                assert f'id="line-{number}"' in browser.get(f"/runs/{made}{query or part}").text


def test_later_lines_are_of_the_version_and_language_that_is_read(console, engine, made):
    transcript = made_day.transcript(made)
    lines = tuple(replace(transcript.lines[0], id=number) for number in range(1, 1348))
    with engine.begin() as connection:
        old = freeze(connection, replace(transcript, lines=lines), "a loop")
        freeze(connection, replace(transcript, lines=lines[:1]), "mended")
    browser = console()
    [later] = re.findall(r'<a href="([^"]+)">Later lines', browser.get(f"/runs/{made}?version={old}&language=de").text)
    page = browser.get(f"/runs/{made}{html.unescape(later)}").text
    assert page.count('class="line"') == 347
    assert f"Version {old}." in page
    assert '<span class="quiet">(de)</span>' in page
    assert f'href="?from=0&amp;language=de&amp;version={old}">Earlier lines' in page


def test_an_upload_is_answered_while_redis_is_away(console, engine, tmp_path):
    store_phase(engine, "llm")
    browser = console(REDIS_URL="redis://127.0.0.1:9/0")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "museum.ogg").write_bytes((made_day.SPEECH / "museum.ogg").read_bytes())
    begun = time.monotonic()
    assert browser.send("/runs", source=str(inbox / "museum.ogg")).status_code == 303
    assert browser.send("/gpu/audio-now").status_code == 303
    assert time.monotonic() - begun < 60
    assert browser.parts.phase_store.pending_request() is not None
    assert len(browser.parts.run_store.list()) == 1


@pytest.mark.parametrize("phase", ["llm", "acquiring", "audio", "stopping_services", "error"])
def test_under_sharing_no_service_has_buttons_and_an_old_form_is_refused(console, engine, phase, monkeypatch):
    store_phase(engine, phase)
    browser = console()
    touched = []
    for name in ("start", "stop"):
        monkeypatch.setattr(browser.parts.services, name, lambda **_: touched.append(1))
    assert "/settings/services/" not in browser.get("/settings/status").text
    answer = browser.send("/settings/services/whisper", action="start")
    assert answer.status_code == 409
    assert "GPU sharing starts and stops the model services" in answer.text
    assert touched == []


def test_with_sharing_off_the_buttons_work_where_the_overlay_is_there(console, monkeypatch):
    browser = console(GPU_PHASE_ENABLED="false")
    asked = []
    monkeypatch.setattr(browser.parts.services, "stop", lambda only: asked.append(("stop", only)))
    monkeypatch.setattr(browser.parts.services, "start", lambda only: asked.append(("start", only)) or {})
    assert "/settings/services/whisper" in browser.get("/settings/status").text
    assert browser.send("/settings/services/whisper", action="restart").status_code == 303
    assert asked == [("stop", ["whisper"]), ("start", ["whisper"])]
    assert browser.send("/settings/services/postgres", action="stop").status_code == 422
    without = console(GPU_PHASE_ENABLED="false", SERVICE_CONTROL="none")
    assert "/settings/services/" not in without.get("/settings/status").text
    assert without.send("/settings/services/whisper", action="stop").status_code == 409


def test_the_list_is_searched_and_filtered(console, engine):
    store_phase(engine, "llm")
    add_recordings(engine, title="The History of 100% Paper")
    add_recordings(engine, title="Choir")
    browser = console()
    assert browser.get("/?q=history").text.count("data-run=") == 1
    assert browser.get("/?q=100%25").text.count("data-run=") == 1
    assert browser.get("/?q=_").text.count("data-run=") == 0
    assert browser.get("/?status=queued").text.count("data-run=") == 2
    assert browser.get("/?status=done").text.count("data-run=") == 0
    assert browser.get("/?status=lunch").status_code == 400
    assert browser.get("/", headers={"origin": BASE}).status_code == 200
