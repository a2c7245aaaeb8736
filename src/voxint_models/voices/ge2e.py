"""A voice vector from speech: the GE2E speaker encoder in numpy.

Three LSTM layers over 1.6 s of a 40-band mel spectrogram, then a linear layer, a ReLU and a division by the length:
Wan, Wang, Papir, Moreno, "Generalized End-to-End Loss for Speaker Verification", 2018. The weights are those of the
resemblyzer package (Apache-2.0), read from its file; the package itself is not imported, as it would ask for PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE, Samples
from voxint_models.serving.errors import WeightsMissingError
from voxint_models.voices.checkpoint import FloatArray, load
from voxint_models.voices.mel import mel_filters

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "resemblyzer-0.1 GE2E"
DIMENSION = 256
WINDOW = 160
"""Frames of 10 ms that the network sees at once."""
WINDOW_SAMPLES = WINDOW * RATE // 100
_LAYERS = 3
_UNITS = 256
_BANDS = 40
_FFT, _HOP = 400, 160  # 25 ms and 10 ms
_LOUDNESS_DB = -30.0
_BATCH = 64  # windows at once: 64 x 160 x 1024 numbers of 4 bytes are 40 MiB


def weights_file() -> Path:
    """Where the weights lie. Raises WeightsMissingError."""
    spec = find_spec("resemblyzer")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "pretrained.pt"
        if path.is_file():
            return path
    raise WeightsMissingError("the package resemblyzer, whose voice weights are used, is not installed: make setup")


@dataclass(frozen=True)
class _Layer:
    inputs: FloatArray
    hidden: FloatArray
    bias: FloatArray


class VoiceEncoder:
    """The network, loaded."""

    def __init__(self, path: Path | None = None) -> None:
        arrays = load(path or weights_file(), "model_state")
        self._layers = [
            _Layer(
                np.ascontiguousarray(arrays[f"lstm.weight_ih_l{k}"].T),
                np.ascontiguousarray(arrays[f"lstm.weight_hh_l{k}"].T),
                arrays[f"lstm.bias_ih_l{k}"] + arrays[f"lstm.bias_hh_l{k}"],
            )
            for k in range(_LAYERS)
        ]
        self._weight = np.ascontiguousarray(arrays["linear.weight"].T)
        self._bias = arrays["linear.bias"]
        self._filters = mel_filters(_BANDS, _FFT)
        self._taper = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)).astype(np.float32)

    def windows(self, samples: Samples, starts: list[int], check: Callable[[], None] = lambda: None) -> FloatArray:
        """A unit vector for each start: of the 1.6 s from there, in samples. Shape (len(starts), 256).

        `check` is called now and then, and may raise.
        """
        found = np.zeros((len(starts), DIMENSION), np.float32)
        for first in range(0, len(starts), _BATCH):
            check()
            some = starts[first : first + _BATCH]
            found[first : first + len(some)] = self._run(np.stack([self._frames(samples, at) for at in some]))
        return found

    def embed(self, samples: Samples, hop_seconds: float = 0.8) -> FloatArray:
        """A unit vector for a whole stretch: the mean over its windows. Short ones are filled up with silence."""
        last = max(0, len(samples) - WINDOW_SAMPLES)
        starts = list(range(0, last + 1, int(hop_seconds * RATE)))
        return unit(self.windows(raised(samples), starts).mean(axis=0))

    def _frames(self, samples: Samples, start: int) -> FloatArray:
        """The mel spectrogram of one window. Shape (160, 40). The signal is mirrored by half a frame at its ends."""
        half = _FFT // 2
        piece = samples[max(0, start - half) : start + WINDOW_SAMPLES + half]
        before = half - min(start, half)
        after = WINDOW_SAMPLES + _FFT - before - len(piece)
        piece = np.pad(piece, (before, max(0, after)))
        frames = np.lib.stride_tricks.sliding_window_view(piece, _FFT)[::_HOP][:WINDOW]
        power = np.abs(np.fft.rfft(frames * self._taper, axis=1)) ** 2
        return np.asarray(power.astype(np.float32) @ self._filters.T, np.float32)

    def _run(self, batch: FloatArray) -> FloatArray:
        """The network over (windows, 160, 40); gives (windows, 256)."""
        values = batch
        for layer in self._layers:
            values = _lstm(values, layer)
        return unit(np.maximum(values[:, -1] @ self._weight + self._bias, 0))


def raised(samples: Samples) -> Samples:
    """The samples, made louder where they are quieter than -30 dB of full scale, as in the encoder's training."""
    level = 20 * np.log10(np.sqrt(np.dot(samples, samples) / len(samples)) + 1e-9) if len(samples) else 0.0
    return np.asarray(samples * np.float32(10 ** (max(0.0, _LOUDNESS_DB - level) / 20)), np.float32)


def unit(vectors: FloatArray) -> FloatArray:
    """The vectors divided by their lengths; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)


def _lstm(values: FloatArray, layer: _Layer) -> FloatArray:
    """One layer over (windows, time, inputs); the gates stand in the order input, forget, cell, output."""
    count, times, _ = values.shape
    gates = values @ layer.inputs + layer.bias
    out = np.empty((count, times, _UNITS), np.float32)
    hidden = np.zeros((count, _UNITS), np.float32)
    cell = np.zeros((count, _UNITS), np.float32)
    for time in range(times):
        i, f, g, o = np.split(gates[:, time] + hidden @ layer.hidden, 4, axis=1)
        cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
        hidden = _sigmoid(o) * np.tanh(cell)
        out[:, time] = hidden
    return out


def _sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + e^-x), written with tanh, which cannot overflow."""
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1), np.float32)
