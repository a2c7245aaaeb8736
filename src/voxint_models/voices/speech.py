"""Where in a recording somebody speaks, by the Silero voice-activity network.

The network (MIT) is the ONNX file that the faster-whisper package carries; that package is not imported for it. It
takes 512 samples and the 64 before them, and keeps a state from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

from voxint_models.audio import RATE, Samples
from voxint_models.serving.errors import WeightsMissingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint_models.voices.checkpoint import FloatArray

NAME = "silero-vad v6"
STEP = 512 / RATE
"""Seconds a step of the network covers."""
_SIZE, _BEFORE = 512, 64
_ON, _OFF = 0.5, 0.35  # it takes more to begin than to go on, so that a word is not cut in its middle
_BRIDGE_SECONDS = 0.24  # a shorter gap is part of the speech
_SHORTEST_SECONDS = 0.25  # shorter speech is a click
_MARGIN_SECONDS = 0.06
_BATCH = 1_000


@dataclass(frozen=True)
class Span:
    """A stretch of a recording, in seconds from its beginning."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.start


def weights_file() -> Path:
    """Where the network lies. Raises WeightsMissingError."""
    spec = find_spec("faster_whisper")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("assets/silero_vad*.onnx")):
            return path
    raise WeightsMissingError(
        "the package faster-whisper, whose voice-activity network is used, is not installed: make setup"
    )


class SpeechFinder:
    """The network, loaded."""

    def __init__(self) -> None:
        wish = onnxruntime.SessionOptions()
        wish.intra_op_num_threads = wish.inter_op_num_threads = 1
        wish.log_severity_level = 4
        self._network = onnxruntime.InferenceSession(weights_file(), wish, providers=["CPUExecutionProvider"])

    def spans(self, samples: Samples, check: Callable[[], None] = lambda: None) -> list[Span]:
        """The stretches with speech, in order, not touching. `check` is called now and then, and may raise."""
        return join(self.likely(samples, check), len(samples) / RATE)

    def likely(self, samples: Samples, check: Callable[[], None] = lambda: None) -> list[float]:
        """How likely speech is, from 0 to 1, for each step of 32 ms."""
        hidden: FloatArray = np.zeros((1, 1, 128), np.float32)
        cell = hidden
        found: list[float] = []
        for first in range(0, len(samples), _BATCH * _SIZE):
            check()
            some = samples[max(0, first - _BEFORE) : first + _BATCH * _SIZE]
            before = _BEFORE if first == 0 else 0
            filled = np.pad(some, (before, -(len(some) + before - _BEFORE) % _SIZE))
            windows = np.lib.stride_tricks.sliding_window_view(filled, _SIZE + _BEFORE)[::_SIZE]
            batch = np.ascontiguousarray(windows)
            likely, hidden, cell = self._network.run(None, {"input": batch, "h": hidden, "c": cell})
            found += likely.reshape(-1).tolist()
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
