"""Which embedder runs: the offline one from packages, or TitaNet with fetched weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint_models.titanet.offline import load as load_offline

if TYPE_CHECKING:
    from voxint_models.serving.options import Options
    from voxint_models.titanet.embedder import Embedder

ENGINES = ("offline",)


def load(options: Options) -> Embedder:
    """The engine that the options name. Raises WeightsMissingError, CannotServeError."""
    return load_offline(options)
