"""The offline diarizer: voice activity, voice vectors and clustering, all from packages, on the CPU."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.pyannote.diarizer import SpokenTurn
from voxint_models.serving.errors import CannotServeError
from voxint_models.voices import ge2e, speech
from voxint_models.voices.turns import TurnFinder

if TYPE_CHECKING:
    from voxint_models.serving.options import Options
    from voxint_models.serving.service import Cancel


class OfflineDiarizer:
    """Silero voice activity and GE2E voice vectors. It hears one voice at a time."""

    model = f"{speech.NAME} + {ge2e.NAME}"

    def __init__(self) -> None:
        self._finder = TurnFinder(speech.SpeechFinder(), ge2e.VoiceEncoder())

    def device(self) -> str:
        """Numpy has but one."""
        return "cpu"

    def versions(self) -> dict[str, str]:
        """Of what runs the two networks."""
        return {"onnxruntime": version("onnxruntime"), "numpy": np.__version__}

    def warm_up(self) -> None:
        """Two seconds of noise through both networks."""
        noise = np.random.default_rng(1).normal(0, 0.1, 2 * RATE).astype(np.float32)
        self._finder.warm_up(noise)

    def diarize(self, samples: Samples, fewest: int, most: int | None, cancel: Cancel) -> list[SpokenTurn]:
        """The turns; speakers are named in the order in which they come."""
        turns = self._finder.turns(samples, fewest, most, cancel.check)
        return [SpokenTurn(turn.start, turn.end, f"SPEAKER_{turn.speaker:02d}", overlap=False) for turn in turns]


def load(options: Options) -> OfflineDiarizer:
    """Load both networks. Raises WeightsMissingError, CannotServeError."""
    if options.device != "cpu":
        raise CannotServeError(f"device {options.device} was asked for, and the offline engine runs on the CPU only")
    return OfflineDiarizer()
