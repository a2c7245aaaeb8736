"""A recording from its file to its transcript, through the real database, gate, runner, clients and decoder."""

from __future__ import annotations

import json
import threading

import pytest
from scripted_services import Raw, answer_json
from sqlalchemy import text

from voxint.recordings.errors import NotAddedError
from voxint.recordings.run import SpeakerRange


def test_a_recording_goes_through_all_stages_and_its_files_are_there(world, make_wav):
    run = world.runs.add(make_wav("10:30 call.wav"), language="en", speakers="2")
    assert (run.title, run.status, run.stage, run.duration_seconds) == ("10:30 call", "queued", "acquire", 10.0)
    assert world.finish() == ["acquire", "prepare", "transcribe", "diarize_embed", "enhance_match", "finalize"]
    run = world.runs.get(run.id)
    assert (run.status, run.error, run.warnings) == ("done", None, ())
    detail = world.runs.show(run.id)
    assert [each.outcome for each in detail.executions] == ["done"] * 6
    files = world.runs.results(run.id)["finalize"]["files"]
    assert set(files) == {"txt", "srt", "vtt", "json", "md"}
    for name in files.values():
        assert (run.folder / name).stat().st_size > 0
    document = json.loads((run.folder / files["json"]).read_text(encoding="utf-8"))
    assert {line["speaker"] for line in document["lines"]} == {"Speaker 1", "Speaker 2"}
    assert world.services.asked["whisper"][0]["fields"]["language"] == [b"en"]
    assert world.services.asked["pyannote"][0]["fields"]["min_speakers"] == [b"2"]
    assert not [path.name for path in run.folder.iterdir() if path.name.endswith(".part")]


def test_what_is_no_recording_is_not_queued(world, tmp_path):
    page = tmp_path / "page.mp4"
    page.write_text("<html>not here</html>")
    for source, words in [(page, "web page"), (tmp_path / "gone.wav", "no such file"), (tmp_path, "no plain file")]:
        with pytest.raises(NotAddedError, match=words):
            world.runs.add(source)
    assert world.runs.list() == ()


@pytest.mark.parametrize("speakers", ["0", "3-2", "two", "2-", "-", "1-51", "1e3"])
def test_a_number_of_speakers_that_cannot_be_is_refused(world, make_wav, speakers):
    with pytest.raises(NotAddedError, match="speakers"):
        world.runs.add(make_wav(), speakers=speakers)


def test_speakers_as_a_range():
    assert SpeakerRange.parse(" 2-4 ") == SpeakerRange(2, 4)
    assert SpeakerRange.parse("") == SpeakerRange()


def test_silence_ends_as_an_empty_transcript_and_asks_no_language_model(world, make_wav):
    run = world.runs.add(make_wav(silent=True))
    world.finish()
    run = world.runs.get(run.id)
    assert run.status == "done"
    assert world.services.asked["language_model"] == []
    assert world.services.asked["titanet"] == []
    results = world.runs.results(run.id)
    assert results["finalize"]["transcript"]["lines"] == []
    assert results["enhance_match"]["llm"] == {"status": "skipped", "why": "there is no text", "model": None}


def test_the_same_recording_twice_is_noticed(world, make_wav):
    first = world.runs.add(make_wav("a.wav"))
    second = world.runs.add(make_wav("b.wav"))
    world.finish()
    assert world.runs.get(first.id).warnings == ()
    assert world.runs.get(second.id).warnings == (f"this is the same recording as run {first.id}",)
    assert world.runs.get(first.id).sha256 == world.runs.get(second.id).sha256


@pytest.mark.parametrize("stage", ["whisper", "pyannote", "titanet"])
def test_a_service_that_is_off_uses_no_attempt(make_world, make_wav, stage):
    world = make_world(**{f"{stage.upper()}_URL": "http://127.0.0.1:9"})
    run = world.runs.add(make_wav())
    world.finish()
    kind = "transcribe" if stage == "whisper" else "diarize_embed"
    item = world.item(run.id, kind)
    assert (item.state, item.attempts) == ("queued", 0)
    assert "connection refused" in item.error
    assert world.runs.get(run.id).waiting_for == f"{stage} does not answer: connection refused"


@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_service_is_waited_for_as_long_as_it_asks(world, make_wav, status):
    world.services.script["whisper"] = [answer_json({"error": "busy"}, status, Retry_After="40")]
    run = world.runs.add(make_wav())
    world.work("gpu", 3)
    item = world.item(run.id, "transcribe")
    assert (item.state, item.attempts) == ("queued", 0)
    assert item.not_before is not None
    assert world.work("gpu") == []
    world.shift(45)
    assert world.work("gpu") == ["transcribe"]


@pytest.mark.parametrize(
    "answer",
    [
        Raw(drop=True),
        Raw(200, json.dumps({"text": "x", "segments": []}), half=True),
        Raw(200, "<html>sign in</html>"),
        Raw(200, "[]"),
        Raw(200, "{}"),
        Raw(500, '{"error": "x\\u0000"}'),
        Raw(404, "no"),
        answer_json({"error": {"message": "out of memory"}}),
    ],
)
def test_a_bad_answer_is_an_attempt_and_three_of_them_fail_the_run_alone(world, make_wav, answer):
    run = world.runs.add(make_wav("bad.wav"))
    world.work("gpu", 2)
    other = world.runs.add(make_wav("good.wav", hertz=300))
    world.services.script["whisper"] = [answer] * 3
    for attempt in range(3):
        world.shift(60 * (attempt + 1))
        assert world.work("gpu") == ["transcribe"]
    failed = world.runs.get(run.id)
    assert failed.status == "failed"
    assert "whisper" in failed.error
    assert "\0" not in failed.error
    world.finish()
    assert world.runs.get(other.id).status == "done"


def test_diarization_that_fails_keeps_the_transcript_and_is_taken_up_there(world, make_wav):
    run = world.runs.add(make_wav())
    world.services.script["pyannote"] = [answer_json({"error": "boom"}, 500)] * 3
    for attempt in range(6):
        world.shift(60 * (attempt + 1))
        world.work("gpu")
    assert (world.runs.get(run.id).status, world.runs.get(run.id).stage) == ("failed", "diarize_embed")
    assert world.runs.results(run.id)["transcribe"]["segments"]
    assert world.parts.lifecycle.requeue(run.id) == "diarize_embed"
    world.finish()
    assert world.runs.get(run.id).status == "done"
    assert len(world.services.asked["whisper"]) == 1


def test_a_refused_recording_fails_at_once(world, make_wav):
    world.services.script["whisper"] = [answer_json({"error": {"message": "no such language"}}, 400)]
    run = world.runs.add(make_wav())
    world.work("gpu", 3)
    assert world.runs.get(run.id).error == "whisper answered 400: no such language"
    assert world.runs.get(run.id).status == "failed"


def test_nul_surrogates_and_numbers_that_are_none_lose_nothing(world, make_wav):
    body = (
        '{"text":"a\\u0000b","language":"en","duration":10,"segments":['
        '{"start":0,"end":1,"text":"a\\u0000b","avg_logprob":NaN},{"start":1,"end":1e400,"text":"h\\ud83di"}],'
        '"words":[{"word":"a\\u0000b","start":0,"end":1,"probability":Infinity},{"word":"h\\ud83di"}]}'
    )
    world.services.script["whisper"] = [Raw(200, body)]
    run = world.runs.add(make_wav())
    world.finish()
    assert world.runs.get(run.id).status == "done"
    lines = world.runs.results(run.id)["finalize"]["transcript"]["lines"]
    assert [line["text"] for line in lines] == ["ab", "hi"]
    assert lines[0]["words"][0]["probability"] is None


def test_an_old_copy_that_lost_its_claim_writes_nothing_over_the_new_result(world, make_wav):
    run = world.runs.add(make_wav())
    world.work("gpu", 2)
    inside, go_on = threading.Event(), threading.Event()

    def slow(request):
        inside.set()
        go_on.wait(60)
        return answer_json({"text": "old", "segments": [{"start": 0, "end": 1, "text": "old"}]})

    new = answer_json({"text": "new", "segments": [{"start": 0, "end": 1, "text": "new"}]})
    world.services.script["whisper"] = [slow, new]
    old = threading.Thread(target=world.work, args=("gpu",))
    old.start()
    assert inside.wait(60)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE work_item SET heartbeat_at = heartbeat_at - interval '1 hour'"))
    while world.parts.gate.reap() == 0:  # the living heart may beat between the two
        with world.engine.begin() as connection:
            connection.execute(text("UPDATE work_item SET heartbeat_at = heartbeat_at - interval '1 hour'"))
    assert world.work("gpu") == ["transcribe"]
    go_on.set()
    old.join(60)
    assert not old.is_alive()
    assert world.runs.results(run.id)["transcribe"]["segments"][0][0]["text"].strip() == "new"


def test_a_deleted_upload_and_a_file_that_changes(world, make_wav):
    path = make_wav()
    run = world.runs.add(path)
    path.unlink()
    world.work("gpu")
    assert world.runs.get(run.id).error == "cannot read speech.wav: No such file or directory"


def test_an_upload_is_taken_away_once_it_is_decoded(world, make_wav):
    path = make_wav()
    run = world.runs.add(path, uploaded=True, title="Monday")
    world.work("gpu")
    assert path.exists()
    world.work("gpu")
    assert not path.exists()
    assert world.runs.get(run.id).title == "Monday"


def test_without_a_language_model_the_text_stays_as_heard(make_world, make_wav):
    world = make_world(LLM_ENABLED="false")
    run = world.runs.add(make_wav())
    world.finish()
    assert world.services.asked["language_model"] == []
    done = world.runs.results(run.id)["finalize"]["transcript"]
    assert done["notices"] == ["Text as heard, without repair by a language model: LLM_ENABLED is off."]


def test_a_model_that_is_loading_is_waited_for(world, make_wav):
    loading = answer_json({"error": {"message": "Loading model", "code": 503}}, 503)
    world.services.script["language_model"] = [loading]
    run = world.runs.add(make_wav())
    world.work("gpu", 4)
    assert world.work("post") == ["enhance_match"]
    item = world.item(run.id, "enhance_match")
    assert (item.state, item.attempts) == ("queued", 0)
    world.shift(30)
    world.finish()
    assert world.runs.get(run.id).status == "done"


def test_a_model_that_only_fails_costs_the_repair_and_not_the_transcript(world, make_wav):
    world.services.always["language_model"] = answer_json({"error": "boom"}, 500)
    run = world.runs.add(make_wav())
    world.work("gpu", 4)
    for attempt in range(4):
        world.shift(60 * (attempt + 1))
        world.work("post")
    run = world.runs.get(run.id)
    assert run.status == "done"
    assert run.warnings == ("3 lines stay as they were heard: the language model answered 500: boom",)
