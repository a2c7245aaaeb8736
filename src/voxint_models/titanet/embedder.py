"""What an embedder answers, whatever the engine, and when a stretch is not worth asking about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.serving.service import Engine

if TYPE_CHECKING:
    from voxint_models.voices.checkpoint import FloatArray

SHORTEST_SECONDS = 0.4
"""A voice cannot be told from less."""
SILENT_DB = -60.0
"""Below this level, relative to full scale, nobody speaks."""


class Embedder(Engine, Protocol):
    """An engine that turns speech into a voice vector."""

    @property
    def dimension(self) -> int:
        """The length of every vector."""

    def embed(self, samples: Samples) -> FloatArray:
        """A unit vector of `dimension` numbers for one stretch of speech."""


def why_not(samples: Samples) -> str | None:
    """`too_short` or `silent` where a stretch gives no voice, else None."""
    if len(samples) < SHORTEST_SECONDS * RATE:
        return "too_short"
    level = 20 * np.log10(float(np.sqrt(np.mean(np.square(samples)))) + 1e-9)
    return "silent" if level < SILENT_DB else None
