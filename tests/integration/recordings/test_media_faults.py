"""Media files as people really have them: without sound, cut, mislabelled, with odd names, made to do harm."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from voxint.recordings.media.probe import DecoderStopped, MediaError, decode, probe


def decoded(path, to, lost=None):
    return decode(path, to, lost=lost or threading.Event(), tell=lambda _facts, _at: None)[1]


def write_wav(path, samples, rate=16_000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, dtype=np.int16).tobytes())
    return path


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "aac"),
        ("a.ogg", "libopus"),
        ("a.webm", "libopus"),
        ("a.flac", "flac"),
        ("a.mp3", "libmp3lame"),
        ("a.mkv", "aac"),
    ],
)
def test_the_common_forms_keep_their_length_and_pitch(make_media, tmp_path, samples_of, name, codec):
    path = make_media(name, codec=codec, container="matroska" if name == "a.mkv" else None)
    done = decoded(path, tmp_path / "out.wav")
    sound = samples_of(tmp_path / "out.wav")
    assert done["seconds"] == pytest.approx(2.0, abs=0.15)
    middle = sound[8000:24000].astype(float)
    loudest = np.argmax(np.abs(np.fft.rfft(middle))) / (len(middle) / 16_000)
    assert loudest == pytest.approx(440, abs=2)


def test_a_video_without_sound_is_refused_in_words(make_media):
    path = make_media("silent.mp4", audio=(), video=True)
    with pytest.raises(MediaError, match="no audio track"):
        probe(path)


SUBTITLES = b"1\n00:00:00,000 --> 00:00:01,000\nhello\n\n2\n00:00:01,000 --> 00:00:02,000\nworld\n"


def with_subtitles(path, sound=None):
    """A Matroska file whose first track is subtitles in English; the sound of another file behind them."""
    import av

    with av.open(io.BytesIO(SUBTITLES), format="srt") as words, av.open(str(path), "w", format="matroska") as out:
        sources = [words, *([av.open(str(sound))] if sound else [])]
        streams = [source.streams.subtitles[0] if source is words else source.streams.audio[0] for source in sources]
        targets = [out.add_stream_from_template(stream) for stream in streams]
        targets[0].metadata["language"] = "eng"
        for source, stream, target in zip(sources, streams, targets, strict=True):
            for packet in source.demux(stream):
                if packet.dts is not None:
                    packet.stream = target
                    out.mux(packet)
        for source in sources[1:]:
            source.close()
    return path


def test_subtitles_are_no_sound(tmp_path):
    with pytest.raises(MediaError, match="no audio track"):
        probe(with_subtitles(tmp_path / "words.mkv"))


def test_subtitles_beside_the_sound_are_no_track_to_choose(make_media, tmp_path):
    sound = make_media("plain.mkv", container="matroska", audio=({"language": "jpn"},))
    path = with_subtitles(tmp_path / "both.mkv", sound)
    facts = probe(path)
    assert facts.track == 1
    assert facts.warnings == ()
    assert decoded(path, tmp_path / "out.wav")["seconds"] == pytest.approx(2.0, abs=0.15)


def test_a_picture_beside_the_sound_is_no_hindrance(make_media, tmp_path):
    path = make_media("cover.mp4", video=True)
    assert decoded(path, tmp_path / "out.wav")["seconds"] == pytest.approx(2.0, abs=0.15)


def test_the_default_track_is_taken_and_named(make_media):
    path = make_media(
        "two.mkv",
        container="matroska",
        audio=({"language": "jpn", "default": "no", "hertz": "300"}, {"language": "eng", "default": "yes"}),
    )
    facts = probe(path)
    assert facts.track == 1
    assert "eng" in facts.track_note
    assert facts.warnings == (f"it has 2 audio tracks; taken is {facts.track_note}",)


def test_of_two_equal_tracks_the_first_is_taken(make_media):
    path = make_media("same.mkv", container="matroska", audio=({"language": "eng"}, {"language": "eng"}))
    assert probe(path).track == 0


def test_sound_that_begins_later_stays_in_step_with_the_picture(make_media, tmp_path, samples_of):
    path = make_media("late.mkv", container="matroska", video=True, seconds=3.0, audio_from=1.5)
    done = decoded(path, tmp_path / "out.wav")
    sound = samples_of(tmp_path / "out.wav")
    first = int(np.argmax(np.abs(sound) > 2000)) / 16_000
    assert first == pytest.approx(1.5, abs=0.1)
    assert done["start_offset_seconds"] == pytest.approx(1.5, abs=0.1)


def test_a_lost_stretch_moves_nothing_behind_it(make_media, tmp_path, samples_of):
    """Packets are taken out of the middle: what follows must still be where the container says."""
    import av

    whole = make_media("whole.mkv", container="matroska", seconds=6.0)
    cut = tmp_path / "cut.mkv"
    with whole.open("rb") as source, cut.open("wb") as target:
        reading = av.open(source)
        writing = av.open(target, "w", format="matroska")
        stream = writing.add_stream_from_template(reading.streams.audio[0])
        for packet in reading.demux(reading.streams.audio[0]):
            if packet.dts is None or 2.0 < float(packet.pts * packet.time_base) < 4.0:
                continue
            packet.stream = stream
            writing.mux(packet)
        writing.close()
        reading.close()
    done = decoded(cut, tmp_path / "out.wav")
    sound = samples_of(tmp_path / "out.wav")
    assert done["seconds"] == pytest.approx(6.0, abs=0.2)
    assert done["filled_seconds"] == pytest.approx(2.0, abs=0.3)
    assert np.abs(sound[int(2.5 * 16_000) : int(3.5 * 16_000)]).max() < 200
    assert np.abs(sound[int(4.5 * 16_000) : int(5.5 * 16_000)]).max() > 4000


def test_zeros_in_the_middle_are_passed_over(make_media, tmp_path):
    path = make_media("hole.mp3", codec="libmp3lame", seconds=10.0)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    done = decoded(path, tmp_path / "out.wav")
    assert 8.0 < done["seconds"] < 10.2
    # This form carries no times of its own: what is lost cannot be filled, so the length tells of it.
    assert done["seconds_expected"] == pytest.approx(10.0, abs=0.2)


def test_an_mp4_without_its_index_fails_with_a_short_reason(make_media, tmp_path):
    path = make_media("upload.mp4", seconds=5.0)
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(MediaError) as caught:
        probe(path)
    said = str(caught.value)
    assert len(said) <= 300
    assert str(tmp_path) not in said
    assert "cut off" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\0" * 5000, "zeros"),
        (b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>" * 20, "web page"),
        (bytes(range(256)) * 40, "no audio or video file"),
        (b"just some words\n" * 200, "no audio or video file"),
    ],
)
def test_what_is_no_media_is_refused_in_words(tmp_path, content, words):
    path = tmp_path / "page.mp4"
    path.write_bytes(content)
    with pytest.raises(MediaError, match=words):
        probe(path)


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile://{secret}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile {secret}\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        "http://127.0.0.1:9/a.mp3\n",
    ],
)
@pytest.mark.parametrize("name", ["list.m3u8", "list.mp4", "list.ffconcat", "list.sdp"])
def test_a_playlist_opens_nothing_else(tmp_path, playlist, name):
    secret = write_wav(tmp_path / "secret.wav", [1000] * 32_000)
    path = tmp_path / name
    path.write_text(playlist.format(secret=secret))
    with pytest.raises(MediaError):
        probe(path)


@pytest.mark.parametrize(
    "name",
    [
        "-y.mp4",
        "-i",
        "10:30 call.mp4",
        "concat:a|b.mp4",
        "http:x.mp4",
        "pipe:0",
        "%d.mp4",
        "[a].mp4",
        "a\nb.mp4",
        "\u4e2d" * 80,
    ],
)
def test_a_name_is_never_an_option_or_an_address(make_media, tmp_path, name):
    path = tmp_path / name
    shutil.move(make_media("plain.mp4"), path)
    assert decoded(path, tmp_path / "out.wav")["seconds"] == pytest.approx(2.0, abs=0.15)


def test_a_file_is_judged_by_its_content(make_media, tmp_path):
    path = make_media("really.mp4").rename(tmp_path / "wrong.mp3")
    assert "mp4" in probe(path).container
    blob = make_media("b.webm", codec="libopus").rename(tmp_path / "blob")
    assert "webm" in probe(blob).container


def test_sound_that_cannot_be_decoded_is_refused_and_nothing_is_told_of_it(make_media, tmp_path):
    """As a protected file: the container is whole, its packets are noise."""
    path = make_media("locked.mp4", seconds=20.0)
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4 if data.index(b"moov") > at else len(data)
    generator = np.random.default_rng(7)
    data[at:end] = generator.integers(0, 256, end - at, dtype=np.uint8).tobytes()
    path.write_bytes(data)
    with pytest.raises(MediaError, match=r"cannot be decoded|no audio or video"):
        decoded(path, tmp_path / "out.wav")


def test_a_title_with_a_nul_is_cleaned(make_media, monkeypatch):
    from voxint.recordings.media.facts import MediaFacts

    document = {
        "container": "mp4",
        "duration_seconds": 1.0,
        "track": 0,
        "track_note": "x",
        "codec": "aac",
        "start_offset_seconds": 0.0,
        "title": "T\0\ud83d",
        "warnings": [],
    }
    assert MediaFacts.from_document(document).title == "T"


def test_the_decoder_gets_no_secret_of_the_workers(make_media, monkeypatch):
    """It opens files of strangers: what it does not have nobody can take from it."""
    usual, given = subprocess.Popen, []

    def started(*args, **named):
        given.append(named["env"])
        return usual(*args, **named)

    monkeypatch.setenv("DATABASE_URL", "postgresql://u:s3cret@db/voxint")
    monkeypatch.setenv("LLM_API_KEY_FILE", "/run/secrets/s3cret")
    monkeypatch.setattr(subprocess, "Popen", started)
    assert probe(make_media("a.mp4")).codec == "aac"
    (environ,) = given
    assert environ["PATH"] == os.environ["PATH"]
    assert not [name for name, value in environ.items() if "s3cret" in value]


def test_a_lost_claim_ends_the_decoder(tmp_path):
    path = write_wav(tmp_path / "long.wav", np.zeros(16_000 * 3600))
    lost = threading.Event()
    lost.set()
    with pytest.raises(DecoderStopped):
        decoded(path, tmp_path / "out.wav", lost)


def test_the_decoder_dies_with_its_parent(tmp_path):
    """kill -9 of the process that decodes: within seconds no decoder of it is left."""
    fifo = tmp_path / "never-ends"
    os.mkfifo(fifo)
    program = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-P', '-m', 'voxint.recordings.media.child', 'probe', sys.argv[1]],"
        " stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\n"
        "p.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(fifo)], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _lives(child):
        time.sleep(0.1)
    assert not _lives(child)


def _lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_full_disk_is_told_apart_from_a_bad_file(make_media):
    path = make_media("a.mp4")
    with pytest.raises(OSError, match="space"):
        decoded(path, Path("/dev/full"))
