"""Looks into a media file and decodes its sound, through PyAV. Runs in the decoder's own process only."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING, Any, BinaryIO

import av
import av.error
import av.logging

from voxint.recordings.media.facts import DEMUXERS, LONGEST_SECONDS, MediaError, Track, choose, describe
from voxint.recordings.media.timeline import RATE, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PACKETS = 200
"""Packets of a file that a look may try before its sound is called unreadable."""
_TOLD_EVERY = 5.0
"""Seconds of sound between two reports of progress."""


def look(file: BinaryIO) -> dict[str, Any]:
    """What the headers and the first packets say; see MediaFacts.

    Raises:
        MediaError: it cannot be worked on.
    """
    with _open(file) as container:
        tracks = _tracks(container)
        track = choose(tracks)
        stream = container.streams[track.index]
        duration = _duration(container, stream)
        if duration is not None and duration > LONGEST_SECONDS:
            raise MediaError(f"it is {duration / 3600:.1f} hours long; at most {LONGEST_SECONDS / 3600:.0f} are taken")
        _first_sound(container, stream)
        note = describe(track, len(tracks))
        return {
            "container": container.format.name,
            "duration_seconds": duration,
            "track": track.index,
            "track_note": note,
            "codec": track.codec,
            "start_offset_seconds": _offset(container, stream),
            "title": container.metadata.get("title"),
            "warnings": [f"it has {len(tracks)} audio tracks; taken is {note}"] if len(tracks) > 1 else [],
        }


def decode(file: BinaryIO, to: Path, track: int, tell: Callable[[float], None]) -> dict[str, Any]:
    """Write the track's sound as 16 kHz mono 16-bit WAV, in step with the container's clock.

    Gives seconds, seconds_expected (None where the container does not say), damaged (packets that could not be
    decoded), and filled_seconds (silence put where sound is missing).

    Raises:
        MediaError: its sound cannot be decoded.
    """
    with _open(file) as container, wave.open(str(to), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        stream = container.streams[track]
        expected = _duration(container, stream)
        timeline = Timeline(container_start=_start(container), expected_seconds=expected)
        damage = _Damage()
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        told = 0.0
        for frame in _frames(container, stream, damage):
            for piece in timeline.place(frame.time, _resampled(resampler, frame)):
                out.writeframesraw(piece)
            if timeline.seconds - told >= _TOLD_EVERY:
                told = timeline.seconds
                tell(told)
            if timeline.seconds > LONGEST_SECONDS:
                raise MediaError(f"it is longer than {LONGEST_SECONDS / 3600:.0f} hours")
        out.writeframes(_resampled(resampler, None))
        frames = out.getnframes()
    damage.judge(frames)
    return {
        "seconds": frames / RATE,
        "seconds_expected": expected,
        "damaged": damage.packets,
        "filled_seconds": timeline.filled_samples / RATE,
        "start_offset_seconds": timeline.offset_seconds,
    }


class _Damage:
    """Counts what cannot be decoded: a little is passed over, a lot means a broken or protected file."""

    def __init__(self) -> None:
        self.packets = 0
        self.sound = 0
        self.why = ""

    def add(self, error: Exception) -> None:
        self.packets += 1
        self.why = _words(error)
        if self.packets > _PACKETS and self.packets > self.sound:
            raise MediaError(f"its sound cannot be decoded ({self.why}): it is damaged or protected")

    def judge(self, frames: int) -> None:
        if frames == 0 and not self.packets:
            raise MediaError("its audio track is empty")
        if frames == 0 or self.packets > self.sound:
            raise MediaError(f"its sound cannot be decoded ({self.why}): it is damaged or protected")


def _open(file: BinaryIO) -> Any:  # noqa: ANN401 - PyAV's containers carry no types here
    av.logging.set_level(None)
    try:
        return av.open(
            file,
            mode="r",
            options={"format_whitelist": DEMUXERS, "protocol_whitelist": "none", "enable_drefs": "0"},
            metadata_errors="ignore",
        )
    except av.error.ArgumentError:
        raise MediaError("it is no audio or video file of a kind that is taken here") from None
    except (av.error.FFmpegError, ValueError, OSError) as error:
        raise MediaError(_not_media(file, error)) from None


def _not_media(file: BinaryIO, error: Exception) -> str:
    file.seek(0)
    head = file.read(512)
    if not head:
        return "the file is empty"
    if not head.strip(b"\0"):
        return "it begins with nothing but zeros: was it still being copied?"
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "it is a web page, not a recording: was an error page saved in its place?"
    if b"ftyp" in head[:16]:
        return f"its index is missing or broken ({_words(error)}): it was cut off while it was written or copied"
    return f"it is no audio or video file, or it is damaged ({_words(error)})"


def _words(error: Exception) -> str:
    """The library's short reason, without the file's name."""
    reason = error.strerror if isinstance(error, av.error.FFmpegError) else type(error).__name__
    return (reason or type(error).__name__)[:120]


def _tracks(container: Any) -> list[Track]:  # noqa: ANN401
    found = []
    for stream in container.streams.audio:
        context = stream.codec_context
        if context is None:
            continue
        is_default = bool(stream.disposition & av.stream.Disposition.default)
        found.append(Track(stream.index, context.name, stream.metadata.get("language"), is_default))
    return found


def _duration(container: Any, stream: Any) -> float | None:  # noqa: ANN401
    if stream.duration is not None and stream.time_base is not None:
        own = float(stream.duration * stream.time_base) + max(_offset(container, stream), 0.0)
        if own > 0:
            return own
    if container.duration is not None and container.duration > 0:
        return float(container.duration / av.time_base)
    return None


def _start(container: Any) -> float | None:  # noqa: ANN401
    return None if container.start_time is None else float(container.start_time / av.time_base)


def _offset(container: Any, stream: Any) -> float:  # noqa: ANN401
    """Seconds by which the track begins after the container does: players show times from the container's start."""
    if stream.start_time is None or stream.time_base is None or container.start_time is None:
        return 0.0
    return float(stream.start_time * stream.time_base) - float(container.start_time / av.time_base)


def _first_sound(container: Any, stream: Any) -> None:  # noqa: ANN401
    damage = _Damage()
    for _ in _frames(container, stream, damage):
        return
    damage.judge(0)


def _frames(container: Any, stream: Any, damage: _Damage) -> Iterator[Any]:  # noqa: ANN401
    """The track's frames; what cannot be read or decoded is counted and passed over."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.error.FFmpegError as error:
            damage.add(error)
            if isinstance(error, av.error.EOFError):
                return
            continue
        try:
            frames = packet.decode()
        except av.error.FFmpegError as error:
            damage.add(error)
            continue
        damage.sound += len(frames)
        yield from frames


def _resampled(resampler: Any, frame: Any) -> bytes:  # noqa: ANN401
    try:
        frames = resampler.resample(frame)
    except ValueError:
        # A track may change its rate or its channels in the middle: what follows is resampled anew.
        resampler.__init__(format="s16", layout="mono", rate=RATE)
        frames = resampler.resample(frame)
    return b"".join(bytes(each.planes[0])[: each.samples * 2] for each in frames)
