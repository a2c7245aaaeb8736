"""What a diarizer answers, whatever the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from voxint_models.serving.service import Cancel, Engine

if TYPE_CHECKING:
    from voxint_models.audio import Samples


@dataclass(frozen=True)
class SpokenTurn:
    """Somebody speaks, in seconds from the recording's beginning; `overlap` where somebody else does too."""

    start: float
    end: float
    speaker: str
    overlap: bool


class Diarizer(Engine, Protocol):
    """An engine that tells speakers apart."""

    def diarize(self, samples: Samples, fewest: int, most: int | None, cancel: Cancel) -> list[SpokenTurn]:
        """The turns by their beginnings; none where nobody speaks. Raises CancelledError when nobody waits any more."""
