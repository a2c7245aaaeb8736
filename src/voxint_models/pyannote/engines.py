"""Which diarizer runs: the offline one from packages, or pyannote.audio with fetched weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint_models.pyannote.offline import load as load_offline

if TYPE_CHECKING:
    from voxint_models.pyannote.diarizer import Diarizer
    from voxint_models.serving.options import Options

ENGINES = ("offline",)


def load(options: Options) -> Diarizer:
    """The engine that the options name. Raises WeightsMissingError, CannotServeError."""
    return load_offline(options)
