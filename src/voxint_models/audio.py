"""Turns an uploaded file into samples: 16 kHz, one channel, float32 from -1 to 1, which all three models take."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

import av
import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from voxint_models.serving.errors import BadRequestError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.audio.frame import AudioFrame
    from av.container import InputContainer

RATE = 16_000
"""Samples a second."""
Samples = NDArray[np.float32]
Whole = NDArray[np.int16]
"""Samples as the decoder gives them: whole numbers, half as large."""
_FULL_SCALE = 32_768.0
_ROUNDING_SECONDS = 1.0  # a packet's length is in whole units of its container


def decode(file: BinaryIO, most_seconds: float) -> Samples:
    """All of a file's first audio track: 230 MB an hour. Raises what `whole` raises."""
    return as_samples(whole(file, most_seconds))


def whole(file: BinaryIO, most_seconds: float) -> Whole:
    """The same in half the memory. Raises BadRequestError (no audio in it) or TooLargeError (too long)."""
    held = bytearray()
    for part in parts(file, most_seconds):
        held += part.tobytes()
    return np.frombuffer(held, np.int16)


def parts(file: BinaryIO, most_seconds: float) -> Iterator[Whole]:
    """The samples of a file's first audio track in the small parts that the decoder gives, with the same errors.

    What is too long is refused before its first part, as far as its packets say how long they are.
    """
    taken, most = 0, int(most_seconds * RATE)
    try:
        _refuse_long(file, most_seconds)
        with av.open(file, mode="r", metadata_errors="ignore") as container:
            for part in _parts(container):
                taken += len(part)
                if taken > most:
                    raise _too_long(most_seconds)
                yield part
    except av.error.FFmpegError as error:
        if not taken:
            raise BadRequestError(f"the file cannot be decoded: {error.strerror}") from None
        # Cut off at the end: what was readable is what there is.


def as_samples(numbers: Whole) -> Samples:
    """Whole numbers of 16 bits as floats from -1 to 1."""
    return np.multiply(numbers, np.float32(1 / _FULL_SCALE), dtype=np.float32)


def seconds(samples: Samples) -> float:
    """The length in seconds, to the millisecond."""
    return round(len(samples) / RATE, 3)


def _refuse_long(file: BinaryIO, most_seconds: float) -> None:
    """Read the packets without decoding them, so that nobody transcribes half a day and only then finds it too long."""
    found = 0.0
    # What cannot be read is for the decoder to say: it may know a way through.
    with suppress(av.error.FFmpegError), av.open(file, mode="r", metadata_errors="ignore") as container:
        for stream in container.streams.audio[:1]:
            for packet in container.demux(stream):
                found += float((packet.duration or 0) * (packet.time_base or 0))
                if found > most_seconds + _ROUNDING_SECONDS:
                    raise _too_long(most_seconds)
    file.seek(0)


def _too_long(most_seconds: float) -> TooLargeError:
    return TooLargeError(f"the recording is longer than {most_seconds / 3600:g} hours, the longest taken")


def _parts(container: InputContainer) -> Iterator[Whole]:
    """The samples in the pieces that the decoder gives."""
    if not container.streams.audio:
        raise BadRequestError("the file has no audio track")
    resampler = AudioResampler(format="s16", layout="mono", rate=RATE)
    for frame in _frames(container):
        for out in resampler.resample(frame):
            yield out.to_ndarray().reshape(-1).astype(np.int16, copy=False)


def _frames(container: InputContainer) -> Iterator[AudioFrame | None]:
    """The track's frames, and None at the end for what the resampler still holds. A damaged packet is passed over."""
    for packet in container.demux(container.streams.audio[0]):
        try:
            yield from packet.decode()
        except av.error.InvalidDataError:
            continue
    yield None
