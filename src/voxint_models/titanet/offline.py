"""The offline embedder: GE2E voice vectors on the CPU. Another model than TitaNet: their vectors do not compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.serving.errors import CannotServeError
from voxint_models.voices import ge2e

if TYPE_CHECKING:
    from voxint_models.serving.options import Options
    from voxint_models.voices.checkpoint import FloatArray


class OfflineEmbedder:
    """The GE2E encoder behind the embedder's interface."""

    model = ge2e.NAME
    dimension = ge2e.DIMENSION

    def __init__(self) -> None:
        self._encoder = ge2e.VoiceEncoder()

    def device(self) -> str:
        """Numpy has but one."""
        return "cpu"

    def versions(self) -> dict[str, str]:
        """Of what runs the network."""
        return {"numpy": np.__version__}

    def warm_up(self) -> None:
        """Two seconds of noise."""
        self.embed(np.random.default_rng(1).normal(0, 0.1, 2 * RATE).astype(np.float32))

    def embed(self, samples: Samples) -> FloatArray:
        """The mean over windows of 1.6 s."""
        return self._encoder.embed(samples)


def load(options: Options) -> OfflineEmbedder:
    """Load the network. Raises WeightsMissingError, CannotServeError."""
    if options.device != "cpu":
        raise CannotServeError(f"device {options.device} was asked for, and the offline engine runs on the CPU only")
    return OfflineEmbedder()
