"""The values of a recording on its way: the run, and what was done to it so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """One recording. `folder` is its own, absolute; all moments are aware and UTC."""

    id: int
    title: str
    source: str
    source_kind: str
    status: str
    stage: str
    folder: Path
    created_at: datetime
    finished_at: datetime | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    language: str | None = None
    speakers_min: int | None = None
    speakers_max: int | None = None
    sha256: str | None = None
    duration_seconds: float | None = None
    progress: float | None = None
    """How far the running stage is, 0 to 1; None where nobody can tell."""
    waiting_for: str | None = None
    """Why the queued stage was put back the last time, where it was."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One claim on a stage or job: who did it, and how it ended."""

    kind: str
    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its history."""

    run: Run
    executions: tuple[Execution, ...]
    results: tuple[str, ...]
    """The kinds of which a result is stored."""


@dataclass(frozen=True, slots=True)
class SpeakerRange:
    """How many speakers a recording is said to have; None where it is not said."""

    fewest: int | None = None
    most: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> SpeakerRange:
        """Read `3` or `2-4`; blank means that nothing is known.

        Raises:
            ValueError: it is neither, or out of bounds (1 to 50).
        """
        if text is None or not text.strip():
            return cls()
        low, dash, high = text.strip().partition("-")
        try:
            fewest, most = int(low), int(high if dash else low)
        except ValueError:
            raise ValueError(f"speakers: {text.strip()!r} is neither a number nor a range like 2-4") from None
        if not 1 <= fewest <= most <= _MOST_SPEAKERS:
            raise ValueError(f"speakers: {text.strip()} must go up, between 1 and {_MOST_SPEAKERS}")
        return cls(fewest, most)


_MOST_SPEAKERS = 50
