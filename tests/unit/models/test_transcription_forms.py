import io

import av
import numpy as np
import pytest
from starlette.testclient import TestClient

from voxint_models.audio import RATE, decode, seconds
from voxint_models.card import CardFiles, Side, take
from voxint_models.serving.app import build
from voxint_models.serving.errors import BadRequestError, TooLargeError
from voxint_models.serving.options import Options
from voxint_models.serving.service import Service
from voxint_models.whisper.heard import Heard, Segment, Word
from voxint_models.whisper.routes import routes, verbose

HEARD = Heard(
    "en",
    3.5,
    (
        Segment(0.0, 1.5, " Hello there.", (Word(" Hello", 0.0, 0.6, 0.9), Word(" there.", 0.7, 1.5, 0.8))),
        Segment(2.0, 3.5, " a --> b\n\nc", (Word(" a", 2.0, 2.2, 0.5),)),
    ),
)


class Parrot:
    """Hears the same whatever it is given, and remembers what was wished."""

    model = "parrot"

    def device(self):
        return "cpu"

    def versions(self):
        return {}

    def warm_up(self):
        pass

    def hear(self, samples, wish, cancel):
        self.wish, self.samples = wish, samples
        return HEARD


@pytest.fixture
def parrot():
    options = Options("127.0.0.1", 1, "x", "cpu", None, 1, 2, 1 << 20, 60)
    one = Service("whisper", options, lambda options: Parrot(), take(CardFiles(), Side.AUDIO, "whisper"))
    one.load()
    return one.engine, TestClient(build(one, routes(one)))


def encoded(samples, rate=RATE, codec="pcm_s16le", container="wav", layout="mono"):
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray((samples * 32767).astype(np.int16)[None], format="s16", layout=layout)
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    return out.getvalue()


def ask(web, **fields):
    return web.post("/v1/audio/transcriptions", files={"file": encoded(np.full(RATE, 0.1))}, data=fields)


def test_the_plain_form_is_text_alone(parrot):
    _, web = parrot
    assert ask(web).json() == {"text": "Hello there. a --> b c"}
    assert ask(web, response_format="text").text == "Hello there. a --> b c\n"


def test_the_verbose_form_has_what_was_asked_for(parrot):
    engine, web = parrot
    both = ask(web, response_format="verbose_json", **{"timestamp_granularities[]": ["word", "segment"]}).json()
    assert list(both) == ["task", "language", "duration", "text", "segments", "words", "model"]
    assert both["words"][1] == {"word": "there.", "start": 0.7, "end": 1.5, "probability": 0.8}
    assert [(s["id"], s["start"], s["end"], s["text"]) for s in both["segments"]] == [
        (0, 0.0, 1.5, " Hello there."),
        (1, 2.0, 3.5, " a --> b\n\nc"),
    ]
    assert engine.wish.words
    segments = ask(web, response_format="verbose_json").json()
    assert "words" not in segments
    assert not engine.wish.words
    words = ask(web, response_format="verbose_json", **{"timestamp_granularities[]": "word"}).json()
    assert "segments" not in words


def test_subtitles_hold_their_form_whatever_was_said(parrot):
    _, web = parrot
    srt = ask(web, response_format="srt").text
    assert srt == ("1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n2\n00:00:02,000 --> 00:00:03,500\na -> b c\n\n")
    vtt = ask(web, response_format="vtt").text
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n")


def test_wishes_reach_the_engine(parrot):
    engine, web = parrot
    ask(web, language="auto", prompt="", vad_filter="false", temperature="0.3")
    assert (engine.wish.language, engine.wish.prompt) == (None, None)
    assert (engine.wish.voice_filter, engine.wish.temperature) == (False, 0.3)
    ask(web, language="EN", prompt="Voxint")
    assert (engine.wish.language, engine.wish.prompt, engine.wish.voice_filter) == ("en", "Voxint", True)
    assert web.get("/v1/models").json()["data"][0]["id"] == "parrot"


@pytest.mark.parametrize(
    "fields", [{"response_format": "xml"}, {"temperature": "7"}, {"timestamp_granularities[]": "line"}]
)
def test_a_wish_that_nobody_knows_is_refused(parrot, fields):
    answer = ask(parrot[1], **fields)
    assert answer.status_code == 422
    assert next(iter(fields)) in answer.json()["error"]["message"]


def test_nothing_heard_is_an_empty_answer():
    assert verbose(Heard("en", 10.0), {"segment", "word"}) == {
        "task": "transcribe",
        "language": "en",
        "duration": 10.0,
        "text": "",
        "segments": [],
        "words": [],
    }


@pytest.mark.parametrize(
    ("rate", "codec", "container"),
    [(16000, "pcm_s16le", "wav"), (44100, "pcm_s16le", "wav"), (8000, "flac", "flac"), (48000, "libopus", "ogg")],
)
def test_any_encoding_becomes_16_khz_mono(rate, codec, container):
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(2 * rate) / rate)
    samples = decode(io.BytesIO(encoded(tone, rate, codec, container)), 60)
    assert seconds(samples) == pytest.approx(2, abs=0.05)
    assert samples.dtype == np.float32
    middle = samples[RATE // 2 : RATE]
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)
    assert np.abs(np.fft.rfft(middle)).argmax() * RATE / len(middle) == pytest.approx(440, abs=3)


def test_a_recording_that_is_too_long_is_refused_and_a_cut_one_is_taken_as_far_as_it_goes():
    data = encoded(np.full(3 * RATE, 0.1))
    with pytest.raises(TooLargeError):
        decode(io.BytesIO(data), 2)
    assert seconds(decode(io.BytesIO(data[: len(data) // 2]), 60)) == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"<html></html>" * 50, bytes(5000)])
def test_what_is_no_audio_is_refused(data):
    with pytest.raises(BadRequestError):
        decode(io.BytesIO(data), 60)


def test_a_file_without_an_audio_track_is_refused():
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    with pytest.raises(BadRequestError, match="no audio track"):
        decode(io.BytesIO(out.getvalue()), 60)
