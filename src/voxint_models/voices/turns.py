"""Who spoke when, from where speech is and what the voices are like: the offline stand-in for a trained diarizer.

It hears one voice at a time (no overlap), and takes two voices that are much alike for one: say how many speakers
there are where that is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.voices import ge2e
from voxint_models.voices.clusters import Labels, centres, cluster, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_models.voices.checkpoint import FloatArray
    from voxint_models.voices.speech import Span, SpeechFinder

ALIKE = 0.62
"""Average cosine from which two groups of voice windows are one speaker."""
_HOP_SECONDS = 0.4
_WINDOW_SECONDS = ge2e.WINDOW_SAMPLES / RATE
_FEWEST_WINDOWS = 3  # a group with fewer is noise, not a person
_SWITCH_COST = 0.25  # cosine that another speaker must be better by, so that one odd window changes nothing
_JOIN_SECONDS = 0.5  # a shorter pause does not end a turn


@dataclass(frozen=True)
class Turn:
    """Somebody speaks, in seconds from the recording's beginning. Speakers are numbered as they come."""

    start: float
    end: float
    speaker: int


class TurnFinder:
    """Speech, voices and groups put together."""

    def __init__(self, speech: SpeechFinder, voices: ge2e.VoiceEncoder) -> None:
        self._speech = speech
        self._voices = voices

    def warm_up(self, samples: Samples) -> None:
        """Both networks over samples of two seconds or so, whatever they hold."""
        self._speech.spans(samples)
        self._voices.embed(samples)

    def turns(
        self,
        samples: Samples,
        fewest: int = 1,
        most: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> list[Turn]:
        """The turns in order; none where nobody speaks. `check` is called now and then, and may raise."""
        spans = self._speech.spans(samples, check)
        if not spans:
            return []
        loud = ge2e.raised(samples)
        starts = [window_starts(span) for span in spans]
        flat = [int(start * RATE) for of_span in starts for start in of_span]
        vectors = self._voices.windows(loud, flat, check)
        brief = [k for k, of_span in enumerate(starts) if not of_span]
        brief_vectors = self._whole(loud, [spans[k] for k in brief])
        middles = speakers(vectors if len(vectors) else brief_vectors, fewest, most)
        of_brief = dict(zip(brief, np.argmax(brief_vectors @ middles.T, axis=1).tolist(), strict=True))
        found: list[Turn] = []
        first = 0
        for k, span in enumerate(spans):
            if k in of_brief:
                found.append(Turn(span.start, span.end, of_brief[k]))
                continue
            scores = vectors[first : first + len(starts[k])] @ middles.T
            first += len(starts[k])
            found += split(span, starts[k], steady(scores))
        return _numbered(joined(found))

    def _whole(self, samples: Samples, spans: list[Span]) -> FloatArray:
        """A vector for each span that is shorter than a window."""
        pieces = [samples[int(span.start * RATE) : int(span.end * RATE)] for span in spans]
        return (
            np.stack([self._voices.embed(piece) for piece in pieces])
            if pieces
            else np.zeros((0, ge2e.DIMENSION), np.float32)
        )


def window_starts(span: Span) -> list[float]:
    """Where the windows of a span begin, in seconds; none where it is shorter than a window."""
    last = span.end - _WINDOW_SECONDS
    if last < span.start:
        return []
    return [span.start + k * _HOP_SECONDS for k in range(int((last - span.start) / _HOP_SECONDS) + 1)]


def speakers(vectors: FloatArray, fewest: int, most: int | None) -> FloatArray:
    """The middle of each speaker's voice. Groups too small for a person go to the nearest one, as limits allow."""
    labels = cluster(vectors, ALIKE, fewest, most)
    sizes = np.bincount(labels)
    kept = [k for k in np.argsort(-sizes, kind="stable").tolist() if sizes[k] >= _FEWEST_WINDOWS]
    for k in np.argsort(-sizes, kind="stable").tolist():
        if len(kept) < max(1, fewest) and k not in kept:
            kept.append(k)
    return centres(vectors, labels)[sorted(kept)]


def steady(scores: FloatArray) -> Labels:
    """The speaker of each window: the best path where a change of speaker costs something (Viterbi)."""
    count, groups = scores.shape
    best = scores[0].astype(np.float64)
    came_from = np.zeros((count, groups), np.int64)
    for k in range(1, count):
        changed = int(np.argmax(best))
        stay = best >= best[changed] - _SWITCH_COST
        came_from[k] = np.where(stay, np.arange(groups), changed)
        best = np.where(stay, best, best[changed] - _SWITCH_COST) + scores[k]
    path = np.zeros(count, np.int64)
    path[-1] = int(np.argmax(best))
    for k in range(count - 1, 0, -1):
        path[k - 1] = came_from[k, path[k]]
    return path


def split(span: Span, starts: list[float], labels: Labels) -> list[Turn]:
    """A span's turns: it changes hands half-way between the middles of two windows of different speakers."""
    found: list[Turn] = []
    begin = span.start
    for k in range(1, len(starts)):
        if labels[k] != labels[k - 1]:
            change = (starts[k - 1] + starts[k] + _WINDOW_SECONDS) / 2
            found.append(Turn(begin, change, int(labels[k - 1])))
            begin = change
    return [*found, Turn(begin, span.end, int(labels[-1]))]


def joined(turns: list[Turn]) -> list[Turn]:
    """Turns of one speaker with hardly a pause between them made one."""
    found: list[Turn] = []
    for turn in turns:
        if found and found[-1].speaker == turn.speaker and turn.start - found[-1].end < _JOIN_SECONDS:
            found[-1] = Turn(found[-1].start, turn.end, turn.speaker)
        else:
            found.append(turn)
    return found


def _numbered(turns: list[Turn]) -> list[Turn]:
    numbers = in_order(np.array([turn.speaker for turn in turns]))
    return [Turn(turn.start, turn.end, int(number)) for turn, number in zip(turns, numbers, strict=True)]
