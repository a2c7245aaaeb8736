"""A recording that is made on the spot: 16 kHz, mono, a sound that is neither silence nor speech."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RATE = 16_000


def made_wav(path: Path, seconds: int, *, silent: bool = False) -> Path:
    """Write it; the path."""
    count = seconds * RATE
    samples = bytes(2 * count) if silent else b"".join((i * 37 % 2000).to_bytes(2, "little") for i in range(count))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples)
    return path
