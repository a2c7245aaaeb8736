"""The three offline servers and the small language model on the sample recordings, over their own sockets."""

import io
import itertools
import json
import re
import wave
from pathlib import Path

import jiwer
import numpy as np
import pytest

from voxint_models.audio import RATE, decode

pytestmark = [pytest.mark.models, pytest.mark.timeout(400)]
SAMPLES = Path(__file__).parents[3] / "examples" / "speech"
NUMBERS = {"2": "two", "7": "seven", "9": "nine", "30": "thirty"}


def known(name):
    lines = (SAMPLES / f"{name}.txt").read_text().splitlines()
    return [tuple(line.split(": ", 1)) for line in lines]


def plain(text):
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()
    return " ".join(NUMBERS.get(word, word) for word in words)


def wav(samples):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).astype(np.int16).tobytes())
    return out.getvalue()


def sample(name):
    with (SAMPLES / f"{name}.ogg").open("rb") as file:
        return decode(file, 600)


def transcribe(server, data, **fields):
    form = {"response_format": "verbose_json", "timestamp_granularities[]": ["segment", "word"], **fields}
    answer = server.client.post("/v1/audio/transcriptions", files={"file": ("a.wav", data)}, data=form)
    assert answer.status_code == 200, answer.text
    return answer.json()


def diarize(server, data, **fields):
    answer = server.client.post("/v1/diarize", files={"file": ("a.wav", data)}, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def embed(server, data, windows):
    form = {"windows": json.dumps([{"start": start, "end": end} for start, end in windows])}
    answer = server.client.post("/v1/embed", files={"file": ("a.wav", data)}, data=form)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ["festival", "garden", "museum"])
def test_the_known_words_are_heard(servers, name):
    answer = transcribe(servers("whisper"), (SAMPLES / f"{name}.ogg").read_bytes())
    error = jiwer.wer(plain(" ".join(words for _, words in known(name))), plain(answer["text"]))
    assert error <= 0.15, answer["text"]
    assert answer["language"] == "en"
    times = [word["start"] for word in answer["words"]]
    assert times == sorted(times)
    assert answer["words"][-1]["end"] <= answer["duration"] + 0.05
    assert len(answer["words"]) == len(answer["text"].split())


@pytest.mark.parametrize(("name", "speakers"), [("festival", 2), ("garden", 2), ("museum", 3)])
def test_the_speakers_are_told_apart(servers, name, speakers):
    answer = diarize(servers("pyannote"), (SAMPLES / f"{name}.ogg").read_bytes())
    turns = answer["turns"]
    assert len({turn["speaker"] for turn in turns}) == speakers
    first_heard = {}
    expected = [f"SPEAKER_{first_heard.setdefault(speaker, len(first_heard)):02d}" for speaker, _ in known(name)]
    assert [turn["speaker"] for turn in turns] == expected
    assert all(0 <= a["end"] <= b["start"] for a, b in itertools.pairwise(turns))
    assert turns[-1]["end"] <= answer["duration"]


def test_the_number_of_speakers_may_be_told(servers):
    data = (SAMPLES / "museum.ogg").read_bytes()
    for wish, found in (
        ({"max_speakers": 2}, 2),
        ({"min_speakers": 4, "max_speakers": 4}, 4),
        ({"max_speakers": 1}, 1),
    ):
        turns = diarize(servers("pyannote"), data, **wish)["turns"]
        assert len({turn["speaker"] for turn in turns}) == found


def test_a_voice_is_alike_across_recordings(servers):
    server, vectors = servers("titanet"), {}
    for name, windows in (("festival", [(0.5, 3.9), (4.9, 10.1)]), ("garden", [(5.4, 9.3), (0.5, 4.7)])):
        answer = embed(server, (SAMPLES / f"{name}.ogg").read_bytes(), windows)
        assert answer["dimension"] == len(answer["embeddings"][0]["embedding"])
        vectors[name] = [np.array(entry["embedding"]) for entry in answer["embeddings"]]
    tom, mara = zip(vectors["festival"], vectors["garden"], strict=True)
    assert min(tom[0] @ tom[1], mara[0] @ mara[1]) > 0.8
    assert max(tom[0] @ mara[0], tom[1] @ mara[1], tom[0] @ mara[1]) < 0.7


def test_two_samples_put_together_give_the_words_and_voices_of_both(servers):
    halves = [known("garden")[:3], known("museum")[:3]]
    first, second = sample("garden")[: int(15.6 * RATE)], sample("museum")[: int(15.0 * RATE)]
    data = wav(np.concatenate([second, first]))
    text = plain(transcribe(servers("whisper"), data)["text"])
    assert "museum" in text
    assert "garden" in text
    assert text.index("museum") < text.index("garden")
    expected = plain(" ".join(words for _, words in halves[1] + halves[0]))
    assert jiwer.wer(expected, text) <= 0.2
    speakers = [turn["speaker"] for turn in diarize(servers("pyannote"), data)["turns"]]
    # museum: Mara, Tom, Ines; garden: Mara, Tom, Mara
    assert speakers == [f"SPEAKER_{k:02d}" for k in (0, 1, 2, 0, 1, 0)]


@pytest.mark.parametrize(("length", "level"), [(0.0, 0.0), (0.01, 1e-4), (0.5, 0.0), (10.0, 1e-4)])
def test_no_speech_gives_nothing_and_no_error(servers, length, level):
    rng = np.random.default_rng(3)
    data = wav((rng.normal(0, 1, int(length * RATE)) * level).clip(-1, 1))
    heard = transcribe(servers("whisper"), data)
    assert (heard["text"], heard["segments"], heard["words"]) == ("", [], [])
    assert diarize(servers("pyannote"), data, min_speakers=2)["turns"] == []
    vectors = embed(servers("titanet"), data, [(0, length)])["embeddings"]
    assert vectors == [{"embedding": None, "reason": "silent" if length >= 0.4 else "too_short"}]


def test_a_single_brief_word_has_one_speaker(servers):
    data = wav(np.concatenate([np.zeros(RATE, np.float32), sample("garden")[int(0.5 * RATE) : int(1.3 * RATE)]]))
    turns = diarize(servers("pyannote"), data)["turns"]
    assert {turn["speaker"] for turn in turns} == {"SPEAKER_00"}


def test_the_language_model_answers(start):
    server = start("language_model").ready()
    assert server.client.get("/v1/models").json()["data"][0]["id"] == "SmolLM2-135M-Instruct.Q4_1"
    request = {
        "messages": [{"role": "user", "content": "What is the capital of France? One word."}],
        "max_tokens": 20,
        "temperature": 0,
    }
    answer = server.client.post("/v1/chat/completions", json=request)
    assert answer.status_code == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    long = {"messages": [{"role": "user", "content": "word " * 5000}]}
    refused = server.client.post("/v1/chat/completions", json=long)
    assert refused.status_code == 400
    assert "context" in refused.json()["error"]["message"]
    assert server.client.post("/v1/chat/completions", json={"messages": "x"}).status_code == 422
    kinds = [entry["request"] for entry in server.ledger() if entry["event"] == "request_end"]
    assert kinds == ["chat"] * 3
