"""TitaNet as an ONNX graph, run by ONNX Runtime on the CPU or on NVIDIA.

The graph is what NeMo's export gives: `audio_signal` (batch, 80, frames) and `length` (batch) in, `logits` and `embs`
(batch, 192) out. Without a GPU in the provider list that ONNX Runtime really made, `cuda` does not start.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from voxint_models.audio import RATE, Samples
from voxint_models.serving.errors import CannotServeError
from voxint_models.titanet.features import BANDS, features
from voxint_models.voices.ge2e import unit
from voxint_models.weights import store

if TYPE_CHECKING:
    from pathlib import Path

    from voxint_models.serving.options import Options
    from voxint_models.voices.checkpoint import FloatArray

_SOUND, _LENGTH, _VECTOR = "audio_signal", "length", "embs"


class TitanetOnnx:
    """A loaded TitaNet graph."""

    def __init__(self, path: Path, name: str, providers: list[Any], threads: int = 1) -> None:
        wish = onnxruntime.SessionOptions()
        wish.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, wish, providers=providers)
        self.model = name
        inputs = {item.name: item for item in self._session.get_inputs()}
        outputs = {item.name: item for item in self._session.get_outputs()}
        if not ({_SOUND, _LENGTH} <= set(inputs) and _VECTOR in outputs):
            raise CannotServeError(
                f"{path.name} is no TitaNet graph: it takes {', '.join(inputs)} and gives {', '.join(outputs)}",
            )
        if inputs[_SOUND].shape[1] != BANDS:
            raise CannotServeError(f"{path.name} takes {inputs[_SOUND].shape[1]} mel bands, and {BANDS} are made here")
        size = outputs[_VECTOR].shape[-1]
        self.dimension = int(size) if isinstance(size, int) else len(self.embed(np.zeros(RATE, np.float32)))

    def device(self) -> str:
        """As ONNX Runtime says which provider runs the graph, and on which card."""
        if self._session.get_providers()[0] != "CUDAExecutionProvider":
            return "cpu"
        options = self._session.get_provider_options().get("CUDAExecutionProvider", {})
        return f"cuda:{options.get('device_id', '0')}"

    def versions(self) -> dict[str, str]:
        """Of ONNX Runtime."""
        return {"onnxruntime": str(onnxruntime.__version__)}

    def warm_up(self) -> None:
        """Two seconds of noise. Raises CannotServeError where the graph gives no usable vector."""
        vector = self.embed(np.random.default_rng(1).normal(0, 0.1, 2 * RATE).astype(np.float32))
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all() or not vector.any():
            raise CannotServeError("the TitaNet graph gives no usable vector")

    def embed(self, samples: Samples) -> FloatArray:
        """The network over the whole stretch."""
        sound, count = features(samples)
        given = {_SOUND: sound[None], _LENGTH: np.array([count], np.int64)}
        (found,) = self._session.run([_VECTOR], given)
        return unit(np.asarray(found[0], np.float32))


def gpus() -> int:
    """How many GPUs CUDA's driver finds; none where there is no driver. ONNX Runtime itself says what it was built with."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def load(options: Options) -> TitanetOnnx:
    """Load the graph. Raises WeightsMissingError, CannotServeError."""
    device, _, index = options.device.partition(":")
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise CannotServeError(
                f"device {options.device} was asked for, and this ONNX Runtime was built without CUDA"
            )
        found = gpus()
        if found <= int(index or 0):
            # Before the weights are looked for: a server that waits for weights would look as if only they were missing.
            raise CannotServeError(f"device {options.device} was asked for, and CUDA's driver finds {found} GPUs")
        providers = [("CUDAExecutionProvider", {"device_id": index or "0"}), *providers]
    path, name = store.find("titanet", options.model)
    if path.is_dir():
        path = min(path.glob("*.onnx"), default=path / "any.onnx")
    engine = TitanetOnnx(path, name, providers, options.threads)
    # ONNX Runtime goes on without a provider that it could not start, and only warns.
    if engine.device().split(":")[0] != device:
        raise CannotServeError(
            f"device {options.device} was asked for, and ONNX Runtime put the graph on {engine.device()}"
        )
    return engine
