"""Turns an uploaded file into samples: 16 kHz, one channel, float32 from -1 to 1, which all three models take."""

from __future__ import annotations

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
_FULL_SCALE = 32_768.0


def decode(file: BinaryIO, most_seconds: float) -> Samples:
    """All of a file's first audio track. Raises BadRequestError (no audio in it) or TooLargeError (too long)."""
    parts: list[NDArray[np.int16]] = []
    taken, most = 0, int(most_seconds * RATE)
    try:
        with av.open(file, mode="r", metadata_errors="ignore") as container:
            for part in _parts(container):
                taken += len(part)
                if taken > most:
                    raise TooLargeError(
                        f"the recording is longer than {most_seconds / 3600:g} hours, the longest taken"
                    )
                parts.append(part)
    except av.error.FFmpegError as error:
        if not parts:
            raise BadRequestError(f"the file cannot be decoded: {error.strerror}") from None
        # Cut off at the end: what was readable is what there is.
    if not parts:
        return np.zeros(0, np.float32)
    return np.concatenate(parts).astype(np.float32) / np.float32(_FULL_SCALE)


def seconds(samples: Samples) -> float:
    """The length in seconds, to the millisecond."""
    return round(len(samples) / RATE, 3)


def _parts(container: InputContainer) -> Iterator[NDArray[np.int16]]:
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
