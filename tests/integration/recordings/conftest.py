"""Media files that the tests make themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import av
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

RATE = 16_000


def tone(seconds: float, rate: int = RATE, hertz: float = 440.0) -> np.ndarray:
    """A tone as 16-bit samples."""
    at = np.arange(int(seconds * rate)) / rate
    return (8000 * np.sin(2 * math.pi * hertz * at)).astype(np.int16)


class MakeMedia(Protocol):
    def __call__(
        self,
        name: str,
        *,
        seconds: float = 2.0,
        audio: Sequence[dict[str, str]] = ({},),
        video: bool = False,
        codec: str | None = None,
        container: str | None = None,
        title: str | None = None,
        audio_from: float = 0.0,
    ) -> Path: ...


@pytest.fixture
def make_media(tmp_path: Path) -> MakeMedia:
    def make(name, *, seconds=2.0, audio=({},), video=False, codec=None, container=None, title=None, audio_from=0.0):
        path = tmp_path / name
        with path.open("wb") as file, av.open(file, "w", format=container or name.rsplit(".", 1)[-1]) as out:
            if title is not None:
                out.metadata["title"] = title
            picture = None
            if video:
                picture = out.add_stream("mpeg4", rate=5)
                picture.width, picture.height, picture.pix_fmt = 64, 64, "yuv420p"
            tracks = []
            for track in audio:
                stream = out.add_stream(codec or "aac", rate=RATE)
                stream.layout = "mono"
                if "language" in track:
                    stream.metadata["language"] = track["language"]
                if track.get("default") == "yes":
                    stream.disposition = av.stream.Disposition.default
                elif "default" in track:
                    stream.disposition = av.stream.Disposition(0)
                tracks.append((stream, float(track.get("hertz", 440))))
            if picture is not None:
                write_picture(out, picture, seconds)
            for stream, hertz in tracks:
                write_tone(out, stream, seconds, hertz, audio_from)
        return path

    return make


def write_picture(out, stream, seconds):
    for number in range(int(seconds * 5)):
        frame = av.VideoFrame(64, 64, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes([number * 7 % 255]) * plane.buffer_size)
        frame.pts = number
        for packet in stream.encode(frame):
            out.mux(packet)
    for packet in stream.encode(None):
        out.mux(packet)


def write_tone(out, stream, seconds, hertz, begins_at):
    samples = tone(seconds, RATE, hertz)
    resampler = av.AudioResampler(format=stream.format, layout="mono", rate=RATE, frame_size=stream.frame_size or 1024)
    source = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
    source.rate = RATE
    source.pts = 0
    for frame in [*resampler.resample(source), *resampler.resample(None)]:
        frame.pts = (frame.pts or 0) + int(begins_at * RATE)
        for packet in stream.encode(frame):
            out.mux(packet)
    for packet in stream.encode(None):
        out.mux(packet)


@pytest.fixture
def samples_of() -> Callable[[Path], np.ndarray]:
    import wave

    def read(path):
        with wave.open(str(path)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
            return np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)

    return read


@pytest.fixture
def services():
    from scripted_services import ScriptedServices

    made = ScriptedServices()
    yield made
    made.close()


def look_here(path):
    from voxint.recordings.media import decoder
    from voxint.recordings.media.facts import MediaFacts

    with path.open("rb") as file:
        return MediaFacts.from_document(decoder.look(file))


class World:
    """A database, a media folder and scripted services, with the real gate and runner."""

    def __init__(self, engine, folder, services, **more):
        from voxint.wiring import Parts

        self.engine = engine
        self.services = services
        self.media = folder / "media"
        self.settings = services.settings(
            DATABASE_URL=engine.url.render_as_string(hide_password=False).replace("+psycopg", ""),
            MEDIA_ROOT=str(self.media),
            **more,
        )
        self.parts = Parts(self.settings)
        self.runs = self.parts.run_store
        # The decoder's own code, without a process for each look: the processes have tests of their own.
        self.runs._look_into = look_here

    def shift(self, seconds):
        from sqlalchemy import text

        with self.engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                    f" AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
                )
            )

    def work(self, lane="gpu", times=1):
        """Do pieces of work; gives the kinds that were claimed."""
        from datetime import timedelta

        from voxint.gpu_phase.model import Lane
        from voxint.work.runner import work_once

        done = []
        for _ in range(times):
            claim = work_once(
                self.parts.gate,
                Lane(lane),
                self.parts.work,
                every=timedelta(seconds=0.2),
                limit=timedelta(seconds=60),
            )
            if claim is None:
                break
            done.append(claim.kind)
        return done

    def finish(self, rounds=3):
        """Work until nothing can be claimed any more."""
        done = []
        for _ in range(rounds):
            step = self.work("gpu", 50) + self.work("post", 50)
            if not step:
                break
            done += step
        return done

    def item(self, run_id, kind):
        from sqlalchemy import text

        with self.engine.connect() as connection:
            return connection.execute(
                text("SELECT * FROM work_item WHERE run_id = :run AND kind = :kind ORDER BY id DESC LIMIT 1"),
                {"run": run_id, "kind": kind},
            ).one()

    def close(self):
        self.parts.close()


@pytest.fixture
def make_world(engine, tmp_path, services):
    made = []

    def make(**more):
        made.append(World(engine, tmp_path, services, **more))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world):
    return make_world()


def write_wav(path, samples, rate=RATE):
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, dtype=np.int16).tobytes())
    return path


@pytest.fixture
def make_wav(tmp_path):
    def make(name="speech.wav", seconds=10.0, *, silent=False, hertz=440.0):
        samples = np.zeros(int(seconds * RATE)) if silent else tone(seconds, RATE, hertz)
        return write_wav(tmp_path / name, samples)

    return make
