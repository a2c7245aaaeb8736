"""pyannote.audio's speaker diarization pipeline, from a local folder: on NVIDIA, on AMD with PyTorch's ROCm build, on the CPU.

`cuda` is PyTorch's name for AMD's cards too.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.pyannote.overlaps import cut
from voxint_models.serving.errors import CannotServeError
from voxint_models.weights import store

if TYPE_CHECKING:
    from voxint_models.pyannote.diarizer import SpokenTurn
    from voxint_models.serving.options import Options
    from voxint_models.serving.service import Cancel

_SHORTEST_SECONDS = 0.5
"""Shorter recordings have no turns; the pipeline's networks cannot take them."""


class PyannoteAudio:
    """A loaded pipeline. `torch` is PyTorch, handed in so that nothing here imports it."""

    def __init__(self, pipeline: Any, torch: Any, name: str) -> None:  # noqa: ANN401 - neither library carries types
        self._pipeline = pipeline
        self._torch = torch
        self.model = name

    def device(self) -> str:
        """As the segmentation network's weights say."""
        return str(next(self._pipeline._segmentation.model.parameters()).device)  # noqa: SLF001 - no public way

    def versions(self) -> dict[str, str]:
        """Of pyannote.audio and PyTorch, and what PyTorch was built for."""
        built = self._torch.version
        platform = {"cuda": built.cuda} if built.cuda else {"rocm": built.hip} if getattr(built, "hip", None) else {}
        return {"pyannote.audio": version("pyannote.audio"), "torch": str(self._torch.__version__), **platform}

    def warm_up(self) -> None:
        """Three seconds of noise."""
        self._run(np.random.default_rng(1).normal(0, 0.1, 3 * RATE).astype(np.float32), {}, None)

    def diarize(self, samples: Samples, fewest: int, most: int | None, cancel: Cancel) -> list[SpokenTurn]:
        """The turns, cut where others begin or end; stops between two batches when it is given up."""
        if len(samples) < _SHORTEST_SECONDS * RATE or not samples.any():
            return []
        limits = {"min_speakers": fewest} if most is None else {"min_speakers": fewest, "max_speakers": most}
        return cut(self._run(samples, limits, cancel))

    def _run(self, samples: Samples, limits: dict[str, int], cancel: Cancel | None) -> list[tuple[float, float, str]]:
        def hook(*_: object, **__: object) -> None:
            if cancel is not None:
                cancel.check()

        given = {"waveform": self._torch.from_numpy(samples[None]), "sample_rate": RATE}
        found = self._pipeline(given, hook=hook, **limits)
        # From version 4 on the answer holds the annotation beside others.
        annotation = getattr(found, "speaker_diarization", found)
        length = len(samples) / RATE
        tracks = annotation.itertracks(yield_label=True)
        return [(max(0.0, turn.start), min(length, turn.end), str(label)) for turn, _, label in tracks]


def load(options: Options) -> PyannoteAudio:
    """Load the pipeline from its folder. Raises WeightsMissingError, CannotServeError."""
    # Nothing about a recording leaves the machine: the library counts its uses otherwise.
    os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
    import torch  # noqa: PLC0415 - heavy: the server already says that it is loading while this goes on
    from pyannote.audio import Pipeline  # noqa: PLC0415

    device, _, index = options.device.partition(":")
    if device != "cpu":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count <= int(index or 0):
            raise CannotServeError(f"device {options.device} was asked for, and PyTorch finds {count} GPUs")
    folder, name = store.find("pyannote", options.model)
    torch.set_num_threads(options.threads)
    pipeline = Pipeline.from_pretrained(folder)
    if pipeline is None:
        raise CannotServeError(f"{folder} holds no pipeline that pyannote.audio can load")
    pipeline.to(torch.device(device, int(index or 0)) if device != "cpu" else torch.device("cpu"))
    engine = PyannoteAudio(pipeline, torch, name)
    if engine.device().split(":")[0] != device:
        raise CannotServeError(f"device {options.device} was asked for, and the pipeline is on {engine.device()}")
    return engine
