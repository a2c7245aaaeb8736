"""Speakers known across recordings, and transcripts that are frozen in versions."""

from __future__ import annotations

import json

import pytest
from scripted_services import answer_json
from sqlalchemy import text

from voxint.recordings.roster import NoSpeakerError, Roster
from voxint.recordings.versions import NoTranscriptError, Transcripts

ANNA, BEN = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
NEAR_ANNA = [0.98, 0.15, 0.1]
BETWEEN = [0.7, 0.7, 0.14]


def voices(*vectors):
    """Two speakers in turn, four seconds each, with these voices."""

    def answer(request):
        import json as _json

        windows = _json.loads(request["fields"]["windows"][0])
        found = [vectors[int(window["start"] // 4) % len(vectors)] for window in windows]
        return answer_json(
            {"model": "ge2e", "dimension": 3, "embeddings": [{"embedding": vector, "reason": None} for vector in found]}
        )

    return answer


@pytest.fixture
def done(world, make_wav):
    counter = iter(range(300, 900, 50))

    def make(*vectors):
        world.services.script["titanet"] = [voices(*vectors)]
        hertz = next(counter)
        run = world.runs.add(make_wav(f"{hertz}.wav", hertz=hertz))
        world.finish()
        assert world.runs.get(run.id).status == "done", world.runs.get(run.id)
        return run.id

    return make


def names(world, run_id):
    found = Transcripts(world.engine).latest(run_id)
    return [line.speaker for line in found[1].lines]


def test_a_named_voice_is_known_in_the_next_recording(world, done):
    roster = Roster(world.engine)
    first = done(ANNA, BEN)
    assert names(world, first) == ["Speaker 1", "Speaker 2", "Speaker 1"]
    assert [(entry.name, entry.recordings) for entry in roster.list()] == [(None, 1), (None, 1)]
    roster.name_in_run(first, "SPEAKER_00", "Anna")
    assert names(world, first) == ["Anna", "Speaker 2", "Anna"]
    second = done(NEAR_ANNA, BEN)
    assert names(world, second) == ["Anna", "Speaker 2", "Anna"]
    assert [(entry.name, entry.recordings) for entry in roster.list()] == [("Anna", 2), (None, 2)]


def test_an_unsure_voice_stays_unknown_and_enters_nothing(world, done):
    first = done(ANNA, BEN)
    Roster(world.engine).name_in_run(first, "SPEAKER_00", "Anna")
    second = done(BETWEEN)
    assert set(names(world, second)) == {"Speaker 1", "Speaker 2"}
    result = world.runs.results(second)["enhance_match"]["speakers"]["SPEAKER_00"]
    assert (result["speaker_id"], result["known"]) == (None, False)
    assert len(Roster(world.engine).list()) == 2


def test_two_voices_of_one_recording_are_never_one_person(world, done):
    first = done(ANNA, BEN)
    Roster(world.engine).name_in_run(first, "SPEAKER_00", "Anna")
    second = done(ANNA, NEAR_ANNA)
    assert sorted(set(names(world, second))) == ["Anna", "Speaker 2"]


def test_renaming_and_merging_freeze_new_versions(world, done):
    roster, transcripts = Roster(world.engine), Transcripts(world.engine)
    first = done(ANNA, BEN)
    one, two = [entry.id for entry in roster.list()]
    roster.rename(one, "Anna")
    roster.rename(two, "Ben")
    assert names(world, first) == ["Anna", "Ben", "Anna"]
    roster.merge(two, one)
    assert names(world, first) == ["Anna", "Anna", "Anna"]
    assert [(entry.id, entry.name) for entry in roster.list()] == [(one, "Anna")]
    assert [version.number for version in transcripts.versions(first)] == [1, 2, 3, 4]
    assert [line.speaker for line in transcripts.get(first, 1).lines] == ["Speaker 1", "Speaker 2", "Speaker 1"]


def test_what_cannot_be_named_is_said(world, done):
    roster = Roster(world.engine)
    run = done(ANNA, BEN)
    with pytest.raises(NoSpeakerError, match="no speaker 99"):
        roster.rename(99, "X")
    with pytest.raises(NoSpeakerError, match="NOBODY"):
        roster.name_in_run(run, "NOBODY", "X")
    with pytest.raises(ValueError, match="say something"):
        roster.rename(roster.list()[0].id, "  ")
    with pytest.raises(ValueError, match="100 characters"):
        roster.rename(roster.list()[0].id, "x" * 101)
    with pytest.raises(ValueError, match="themselves"):
        roster.merge(1, 1)


def test_a_speaker_without_a_vector_can_still_be_named(world, make_wav):
    world.services.script["titanet"] = [
        lambda request: answer_json(
            {
                "model": "ge2e",
                "embeddings": [
                    {"embedding": None, "reason": "too_short"} for _ in json.loads(request["fields"]["windows"][0])
                ],
            }
        )
    ]
    run = world.runs.add(make_wav())
    world.finish()
    Roster(world.engine).name_in_run(run.id, "SPEAKER_01", "Ben")
    assert names(world, run.id) == ["Speaker 1", "Ben", "Speaker 1"]


def test_a_stage_done_twice_enters_its_voices_once(world, done):
    run = done(ANNA, BEN)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE run SET status = 'failed', error = 'x', stage = 'enhance_match'"))
    world.parts.lifecycle.requeue(run)
    world.finish()
    assert len(Roster(world.engine).list()) == 2
    assert len(Transcripts(world.engine).versions(run)) == 1


def test_a_name_that_is_given_while_the_transcript_is_frozen_is_in_it(world, make_wav, monkeypatch):
    """Right between the look at the names and the freezing: neither the one nor the other would show it."""
    from voxint.recordings.stages import finalize

    usual = finalize.frozen

    def named_meanwhile(context):
        made = usual(context)
        Roster(world.engine).name_in_run(context.run.id, "SPEAKER_00", "Anna")
        return made

    monkeypatch.setattr(finalize, "frozen", named_meanwhile)
    world.services.script["titanet"] = [voices(ANNA, BEN)]
    run = world.runs.add(make_wav())
    world.finish()
    assert names(world, run.id) == ["Anna", "Speaker 2", "Anna"]
    stored = world.runs.results(run.id)["finalize"]["transcript"]
    assert [line["speaker"] for line in stored["lines"]] == ["Anna", "Speaker 2", "Anna"]


def test_exports_of_the_newest_version_and_of_an_older_one(world, done):
    run = done(ANNA, BEN)
    Roster(world.engine).name_in_run(run, "SPEAKER_00", "Anna")
    transcripts = Transcripts(world.engine)
    export = transcripts.export(run, "srt")
    assert export.name == "300.srt"
    assert b"Anna: " in export.body
    assert b"Anna: " not in transcripts.export(run, "srt", number=1).body
    for form, number, words in [
        ("exe", None, "no form"),
        ("../../etc/passwd", None, "no form"),
        ("srt", 9, "no version 9"),
    ]:
        with pytest.raises(NoTranscriptError, match=words):
            transcripts.export(run, form, number=number)
    with pytest.raises(NoTranscriptError, match="no transcript yet"):
        transcripts.export(999, "txt")
    with pytest.raises(NoTranscriptError, match="no translation"):
        transcripts.export(run, "txt", language="de")
