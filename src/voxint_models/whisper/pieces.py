"""A long recording as pieces of some minutes, cut where nobody speaks, so that memory does not grow with its length.

The recognizer computes the spectrum of all that it is handed at once: about 65 MB a minute. It looks at 30 seconds at a
time anyway, so a piece that ends in silence loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE, as_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from voxint_models.audio import Samples, Whole

LONGEST_SECONDS = 300.0
"""No piece is longer but the last, by `LAST_SECONDS` at most."""
LOOK = 0.2
"""The cut lies in this last part of a piece."""
LAST_SECONDS = 5.0
"""The last piece is not shorter, but where the whole recording is: a word alone is not understood as well."""
_SPEECH = 0.35  # the network's own threshold for the end of speech


@dataclass(frozen=True)
class Piece:
    """A stretch of a recording: where it begins, in seconds, and its samples."""

    start: float
    samples: Samples


def pieces(
    parts: Iterable[Whole],
    likely: Callable[[Samples], list[float]],
    *,
    longest_seconds: float = LONGEST_SECONDS,
) -> Iterator[Piece]:
    """Put the decoder's small parts together to pieces. No sample is lost, and none is in two pieces.

    `likely` says for each equally long step of some samples how likely speech is, from 0 to 1.
    """
    longest, look = int(longest_seconds * RATE), int(longest_seconds * RATE * LOOK)
    held: list[Whole] = []
    length = done = 0
    for part in parts:
        held.append(part)
        length += len(part)
        while length >= longest + int(LAST_SECONDS * RATE):
            together = np.concatenate(held)
            first = longest - look
            cut = first + quiet(as_samples(together[first:longest]), likely)
            yield Piece(done / RATE, as_samples(together[:cut]))
            held, length, done = [together[cut:].copy()], length - cut, done + cut
    if length or not done:
        yield Piece(done / RATE, as_samples(np.concatenate([np.zeros(0, np.int16), *held])))


def quiet(samples: Samples, likely: Callable[[Samples], list[float]]) -> int:
    """The sample to cut at: the middle of the longest time without speech, else the quietest tenth of a second."""
    found = likely(samples)
    best = run = end = 0
    for step, value in enumerate(found, 1):
        run = run + 1 if value < _SPEECH else 0
        if run > best:
            best, end = run, step
    if best:
        return round((end - best / 2) * len(samples) / len(found))
    size = RATE // 10
    energy = np.square(samples[: len(samples) // size * size].reshape(-1, size)).mean(axis=1)
    return int(np.argmin(energy)) * size + size // 2
