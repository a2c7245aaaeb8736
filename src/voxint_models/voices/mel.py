"""The mel filter bank that both voice networks look through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxint_models.audio import RATE

if TYPE_CHECKING:
    from voxint_models.voices.checkpoint import FloatArray


def mel_filters(bands: int, size: int) -> FloatArray:
    """Triangular filters on Slaney's mel scale up to half the rate, each of area one. Shape (bands, size // 2 + 1)."""
    linear_step, log_from = 200 / 3, 1000.0
    log_step = np.log(6.4) / 27
    mel_from = log_from / linear_step
    top = mel_from + np.log(RATE / 2 / log_from) / log_step
    mels = np.linspace(0, top, bands + 2)
    hertz = np.where(mels < mel_from, mels * linear_step, log_from * np.exp(log_step * (mels - mel_from)))
    distance = hertz[:, None] - np.linspace(0, RATE / 2, size // 2 + 1)[None]
    widths = np.diff(hertz)[:, None]
    rising, falling = -distance[:-2] / widths[:-1], distance[2:] / widths[1:]
    area = (2 / (hertz[2:] - hertz[:-2]))[:, None]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * area, np.float32)
