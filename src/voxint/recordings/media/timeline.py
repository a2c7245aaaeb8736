"""PURE: keeps decoded sound in step with the container's clock, so that a lost packet moves nothing behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE = 16_000
"""Samples a second of what is written."""
SLACK_SECONDS = 0.25
"""A difference up to this is a codec's own delay, and is left alone."""
LONGEST_GAP_SECONDS = 600.0
"""A jump beyond this is a clock that was set anew, not missing sound."""
_BLOCK = RATE * 2 * 30


class Timeline:
    """Where the next sound belongs. Sound is bytes of 16-bit mono samples.

    Args:
        container_start: the container's own first moment in seconds; None where it does not say.
        expected_seconds: how long the sound should be; no gap is filled beyond it.
    """

    def __init__(self, container_start: float | None, expected_seconds: float | None) -> None:
        self._base = container_start
        self._expected = expected_seconds
        self._samples = 0
        self._begun = False
        self.filled_samples = 0
        self.offset_seconds = 0.0

    @property
    def seconds(self) -> float:
        """How much has been placed."""
        return self._samples / RATE

    def place(self, at: float | None, sound: bytes) -> Iterator[bytes]:
        """What is to be written for sound that the container says begins `at` seconds on its clock."""
        missing = self._missing(at)
        for start in range(0, missing * 2, _BLOCK):
            yield b"\0" * min(_BLOCK, missing * 2 - start)
        self.filled_samples += missing
        self._samples += missing + len(sound) // 2
        yield sound

    def _missing(self, at: float | None) -> int:
        first, self._begun = not self._begun, True
        if at is None:
            return 0
        if self._base is None:
            self._base = at
        gap = at - self._base - self.seconds
        if abs(gap) > LONGEST_GAP_SECONDS or (self._expected is not None and at - self._base > self._expected + 1):
            self._base = at - self.seconds
            return 0
        if gap <= SLACK_SECONDS:
            return 0
        if first:
            self.offset_seconds = gap
        return round(gap * RATE)
