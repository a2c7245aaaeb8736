import io
import json
import math
import wave
from pathlib import Path

import pytest

from voxint_models.stub import answers, form
from voxint_models.stub.behaviour import Behaviour, Behaviours, behaviour_of, parser


def wav(seconds, value):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(value.to_bytes(2, "little") * int(16000 * seconds))
    return out.getvalue()


def test_one_file_gives_one_text_and_another_file_another():
    one, same, other = (answers.Heard.of(wav(10, value)) for value in (1, 1, 2))
    assert answers.transcription(one, None, "m") == answers.transcription(same, None, "m")
    assert answers.transcription(one, None, "m")["text"] != answers.transcription(other, None, "m")["text"]


def test_words_lie_in_the_recording_in_order():
    answer = answers.transcription(answers.Heard.of(wav(10, 7)), "de", "m")
    assert answer["duration"] == 10
    assert answer["language"] == "de"
    assert [(s["start"], s["end"]) for s in answer["segments"]] == [(0, 4), (4, 8), (8, 10)]
    times = [t for word in answer["words"] for t in (word["start"], word["end"])]
    assert times == sorted(times)
    assert times[-1] == 10
    spoken = " ".join(word["word"] for word in answer["words"])
    assert spoken == answer["text"].lower().replace(".", "")


def test_silence_and_an_empty_file_give_nothing():
    for data in (wav(10, 0), b""):
        heard = answers.Heard.of(data)
        assert answers.transcription(heard, None, "m")["segments"] == []
        assert answers.transcription(heard, None, "m")["text"] == ""
        assert answers.diarization(heard, None, None)["turns"] == []
        assert answers.embedding(heard, [{"start": 0, "end": 3}], "m")["embeddings"] == [
            {"embedding": None, "reason": "silent"},
        ]


def test_a_speakers_windows_are_alike_and_anothers_are_not():
    heard = answers.Heard.of(wav(16, 5))
    windows = [{"start": t, "end": t + 4} for t in (0, 4, 8, 12)] + [{"start": 1, "end": 1.1}]
    found = answers.embedding(heard, windows, "m")
    vectors = [entry["embedding"] for entry in found["embeddings"]]
    assert found["embeddings"][-1] == {"embedding": None, "reason": "too_short"}
    assert vectors[0] == vectors[2]
    assert vectors[1] == vectors[3]
    assert len(vectors[0]) == found["dimension"]
    assert math.isclose(sum(v * v for v in vectors[0]), 1, abs_tol=1e-3)
    assert abs(sum(a * b for a, b in zip(vectors[0], vectors[1], strict=True))) < 0.5


@pytest.mark.parametrize(("fewest", "most", "speakers"), [(None, None, 2), (3, None, 3), (None, 1, 1), (4, 6, 4)])
def test_the_limits_on_speakers_are_kept(fewest, most, speakers):
    turns = answers.diarization(answers.Heard.of(wav(40, 5)), fewest, most)["turns"]
    assert len({turn["speaker"] for turn in turns}) == speakers


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ('Repair these lines:\n[{"id": 1, "text": "hello [x]"}]', '[{"id": 1, "text": "hello [x]"}]'),
        ('```json\n{"a": {"b": 1}}\n```', '{"a": {"b": 1}}'),
        ("Repair:\n1: hello\n2: there", "1: hello\n2: there"),
        ("Say what this is: one two", "A text of 6 words that begins: Say what this is: one two"),
        ("", "A text of 0 words that begins: "),
    ],
)
def test_the_language_model_gives_back_what_it_was_given(said, answer):
    assert answers.reply(said) == answer


def test_a_chat_answer_has_the_known_form():
    request = {
        "messages": [
            {"role": "system", "content": "be short"},
            {"role": "user", "content": [{"type": "text", "text": "1: hi"}]},
        ],
    }
    answer = answers.chat(request, "m")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "1: hi"}
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    one = answers.chat(request | {"max_tokens": 1}, "m")
    assert one["choices"][0]["finish_reason"] == "length"


def test_a_form_is_read_as_it_was_sent():
    data = b"\x00\r\n--nearly\r\n\r\n\xff"
    body = (
        b'--B\r\nContent-Disposition: form-data; name="language"\r\n\r\nen\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
        + data
        + b"\r\n--B--\r\n"
    )
    read = form.parse("multipart/form-data; boundary=B", body)
    assert read == {"language": [b"en"], "file": [data]}
    assert form.first(read, "language") == "en"
    assert form.first(read, "windows") is None
    with pytest.raises(form.FormError):
        form.parse("application/json", b"{}")


def test_the_control_file_changes_the_behaviour_while_it_runs(tmp_path):
    control = tmp_path / "control.json"
    arguments = parser().parse_args(["whisper", "--port", "1", "--answer-seconds", "2", "--device", "cuda:0"])
    behaviours = Behaviours("whisper", behaviour_of(arguments), control)
    assert behaviours.at("/x") == Behaviour(answer_seconds=2, device="cuda:0")
    control.write_text(
        json.dumps(
            {
                "answer_seconds": 0,
                "status": 500,
                "whisper": {"status": 503, "paths": {"/healthz": {"stall": True}}},
                "titanet": {"die_after": 1},
                "unknown": 3,
            },
        ),
    )
    assert behaviours.at("/x") == Behaviour(answer_seconds=0, device="cuda:0", status=503)
    assert behaviours.at("/healthz") == Behaviour(answer_seconds=0, device="cuda:0", stall=True)
    control.write_text('{"answer_sec')
    assert behaviours.at("/x").status == 503, "a half-written file changes nothing"
    Path(control).unlink()
    assert behaviours.at("/x") == Behaviour(answer_seconds=2, device="cuda:0")
