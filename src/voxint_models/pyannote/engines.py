"""Which diarizer runs: the offline one from packages, or pyannote.audio with fetched weights.

Each engine's libraries are imported only when it is the one that runs: no image holds all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint_models.serving.errors import CannotServeError

if TYPE_CHECKING:
    from voxint_models.pyannote.diarizer import Diarizer
    from voxint_models.serving.options import Options

OFFLINE, FETCHED = "offline", "pyannote.audio"
ENGINES = (OFFLINE, FETCHED)


def load(options: Options) -> Diarizer:
    """The engine that the options name. Raises WeightsMissingError, CannotServeError."""
    if options.engine == FETCHED:
        try:
            from voxint_models.pyannote import pyannote_audio  # noqa: PLC0415

            return pyannote_audio.load(options)
        except ImportError as error:
            raise CannotServeError(f"the engine {FETCHED} was asked for, and is not installed: {error}") from None
    from voxint_models.pyannote import offline  # noqa: PLC0415

    return offline.load(options)
