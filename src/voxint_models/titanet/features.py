"""What TitaNet sees of sound: NeMo's log-mel features, in numpy.

As NeMo's AudioToMelSpectrogramPreprocessor makes them for TitaNet at inference: pre-emphasis 0.97, Hann windows of 25 ms
every 10 ms in transforms of 512, 80 Slaney mel bands of the power, the logarithm with 2^-24 added, and each band brought
to mean 0 and deviation 1 over the recording. The number of frames is filled up to a multiple of 16 with zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxint_models.voices.mel import mel_filters

if TYPE_CHECKING:
    from voxint_models.audio import Samples
    from voxint_models.voices.checkpoint import FloatArray

BANDS = 80
_FFT, _WINDOW, _HOP = 512, 400, 160
_EMPHASIS = 0.97
_GUARD = 2.0**-24
_FLOOR = 1e-5
_MULTIPLE = 16


def features(samples: Samples) -> tuple[FloatArray, int]:
    """Features of shape (80, frames), and how many of the frames are of the sound and not of the filling."""
    emphasized = np.concatenate([samples[:1], samples[1:] - np.float32(_EMPHASIS) * samples[:-1]])
    padded = np.pad(emphasized, _FFT // 2)
    taper = np.zeros(_FFT, np.float32)
    edge = (_FFT - _WINDOW) // 2
    taper[edge : edge + _WINDOW] = np.hanning(_WINDOW)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP] * taper
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    logs = np.log(power @ mel_filters(BANDS, _FFT).T + _GUARD).T
    count = max(1, len(samples) // _HOP)
    logs = logs[:, :count]
    # the deviation is the sample's, which divides by one less than the count
    spread = logs.std(axis=1, ddof=1, keepdims=True) if count > 1 else np.zeros((BANDS, 1))
    normal = (logs - logs.mean(axis=1, keepdims=True)) / (spread + _FLOOR)
    return np.pad(normal, ((0, 0), (0, -count % _MULTIPLE))).astype(np.float32), count
