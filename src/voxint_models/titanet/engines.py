"""Which embedder runs: the offline one from packages, or TitaNet with fetched weights.

Each engine's libraries are imported only when it is the one that runs: no image holds all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint_models.serving.errors import CannotServeError

if TYPE_CHECKING:
    from voxint_models.serving.options import Options
    from voxint_models.titanet.embedder import Embedder

OFFLINE, FETCHED = "offline", "onnx"
ENGINES = (OFFLINE, FETCHED)


def load(options: Options) -> Embedder:
    """The engine that the options name. Raises WeightsMissingError, CannotServeError."""
    if options.engine == FETCHED:
        try:
            from voxint_models.titanet import titanet_onnx  # noqa: PLC0415

            return titanet_onnx.load(options)
        except ImportError as error:
            raise CannotServeError(f"the engine {FETCHED} was asked for, and is not installed: {error}") from None
    from voxint_models.titanet import offline  # noqa: PLC0415

    return offline.load(options)
