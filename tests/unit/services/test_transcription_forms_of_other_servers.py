"""What speaches, whisper.cpp's server and vLLM answer becomes the same words as our own server's.

The forms are those of their own answer types: speaches-ai/speaches, src/speaches/api_types.py at 9cc683f; vLLM,
vllm/entrypoints/openai/protocol.py (TranscriptionResponseVerbose, TranscriptionSegment); whisper.cpp, examples/server/server.cpp.
"""

import pytest

from voxint.recordings.transcript import segments_of
from voxint.services.whisper import heard_in

SEGMENT = {"temperature": 0.0, "avg_logprob": -0.2, "compression_ratio": 1.1, "no_speech_prob": 0.01, "tokens": [1, 2]}

OURS = {
    "task": "transcribe",
    "language": "en",
    "duration": 4.0,
    "text": "Good morning. Thank you.",
    "segments": [
        {"id": 0, "seek": 0, "start": 0.0, "end": 1.5, "text": " Good morning.", **SEGMENT},
        {"id": 1, "seek": 0, "start": 2.0, "end": 3.5, "text": " Thank you.", **SEGMENT},
    ],
    "words": [
        {"word": "Good", "start": 0.0, "end": 0.6, "probability": 0.9},
        {"word": "morning.", "start": 0.7, "end": 1.5, "probability": 0.9},
        {"word": "Thank", "start": 2.0, "end": 2.6, "probability": 0.9},
        {"word": "you.", "start": 2.7, "end": 3.5, "probability": 0.9},
    ],
    "model": "whisper tiny.en",
}


def spaced(segment=None):
    """Words as the engine gives them, with a leading space and a speaker of their own; those of one segment, or all."""
    return [
        word | {"word": " " + word["word"], "speaker": None}
        for word in OURS["words"]
        if segment is None or segment["start"] <= word["start"] < segment["end"]
    ]


# speaches: the same words twice, in their segments and beside them
SPEACHES = {
    **{key: OURS[key] for key in ("task", "language", "duration", "text")},
    "segments": [segment | {"words": spaced(segment), "speaker": None} for segment in OURS["segments"]],
    "words": spaced(),
}
# speaches, asked for segments only
SPEACHES_SEGMENTS = {
    **{key: OURS[key] for key in ("task", "language", "duration", "text")},
    "segments": [segment | {"words": None, "speaker": None} for segment in OURS["segments"]],
    "words": None,
}
# whisper.cpp: the language's full name, words in their segments, and what it thinks of other languages
WHISPER_CPP = {
    "task": "transcribe",
    "language": "english",
    "duration": 4.0,
    "text": " Good morning. Thank you.\n",
    "segments": [
        {
            "id": k,
            "text": segment["text"],
            "start": segment["start"],
            "end": segment["end"],
            "tokens": [1],
            "words": [word | {"t_dtw": -1} for word in spaced(segment)],
            "temperature": 0.0,
            "avg_logprob": -0.2,
            "no_speech_prob": 0.0,
        }
        for k, segment in enumerate(OURS["segments"])
    ],
    "detected_language": "english",
    "detected_language_probability": 0.98,
    "language_probabilities": {"en": 0.98},
}
# vLLM: the duration as text, no words, and none of the numbers about a segment that it does not know
VLLM = {
    "duration": "4.0",
    "language": "en",
    "text": " Good morning. Thank you.",
    "segments": [
        segment | {"avg_logprob": None, "compression_ratio": None, "no_speech_prob": None}
        for segment in OURS["segments"]
    ],
    "words": None,
}


def spoken(document):
    return [[word.text.strip() for word in words] for words in segments_of(heard_in(document), 4.0)]


@pytest.mark.parametrize("document", [OURS, SPEACHES, WHISPER_CPP], ids=["ours", "speaches", "whisper.cpp"])
def test_words_with_their_times_come_through(document):
    assert spoken(document) == [["Good", "morning."], ["Thank", "you."]]
    times = [(word.start, word.end) for words in segments_of(heard_in(document), 4.0) for word in words]
    assert times == [(word["start"], word["end"]) for word in OURS["words"]]


@pytest.mark.parametrize("document", [VLLM, SPEACHES_SEGMENTS], ids=["vllm", "speaches"])
def test_a_server_without_words_gives_its_segments(document):
    found = segments_of(heard_in(document), 4.0)
    assert " ".join(" ".join(word.text.split()) for words in found for word in words) == "Good morning. Thank you."
    assert [round(words[0].start, 1) for words in found] == [0.0, 2.0]


def test_a_duration_in_words_is_no_number():
    assert heard_in(VLLM).duration_seconds is None, "a text is no number; the recording's own length is used"


@pytest.mark.parametrize("server", [OURS, SPEACHES, WHISPER_CPP, VLLM], ids=["ours", "speaches", "whisper.cpp", "vllm"])
def test_nothing_said_is_an_empty_transcript(server):
    empty = server | {"text": "", "segments": [], "words": None if server is VLLM else []}
    assert segments_of(heard_in(empty), 4.0) == []
