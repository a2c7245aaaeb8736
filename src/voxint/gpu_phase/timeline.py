"""PURE: the history as stretches of time: who had the GPU from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from voxint.gpu_phase.model import Cause, PhaseState
    from voxint.gpu_phase.store import Event


class Owner(StrEnum):
    """Who has the GPU in a phase, as the picture shows it."""

    NOBODY_KNOWN = "unknown"
    LANGUAGE_MODEL = "llm"
    CHANGING = "changing"
    AUDIO = "audio"
    ERROR = "error"


OWNERS: dict[Phase | None, Owner] = {
    None: Owner.NOBODY_KNOWN,
    Phase.LLM: Owner.LANGUAGE_MODEL,
    Phase.DRAINING_POST: Owner.LANGUAGE_MODEL,
    Phase.ACQUIRING: Owner.CHANGING,
    Phase.STARTING_SERVICES: Owner.CHANGING,
    Phase.AUDIO: Owner.AUDIO,
    Phase.DRAINING: Owner.AUDIO,
    Phase.STOPPING_SERVICES: Owner.CHANGING,
    Phase.RELEASING: Owner.CHANGING,
    Phase.ERROR: Owner.ERROR,
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stay in a phase, cut to the window. `cause` is why it began; None where that is outside the window."""

    phase: Phase | None
    since: datetime
    until: datetime
    cause: Cause | None

    @property
    def length(self) -> timedelta:
        """How long it lasts within the window."""
        return self.until - self.since

    @property
    def owner(self) -> Owner:
        """Who has the GPU."""
        return OWNERS[self.phase]


def stretches(
    events: Sequence[Event], state: PhaseState | None, since: datetime, until: datetime
) -> tuple[Stretch, ...]:
    """The window as stretches without gaps, oldest first; none of no length.

    Args:
        events: the changes of phase in the window, oldest first.
        state: what is stored now; it tells the phase where the window holds no change.
        since: the window's begin.
        until: its end, the present.
    """
    inside = [event for event in events if since <= event.at <= until]
    first = inside[0].from_phase if inside else (state.phase if state else None)
    marks: list[tuple[datetime, Phase | None, Cause | None]] = [(since, first, None)]
    marks += [(event.at, event.to_phase, event.cause) for event in inside]
    ends = [mark[0] for mark in marks[1:]] + [until]
    found = (Stretch(phase, at, end, cause) for (at, phase, cause), end in zip(marks, ends, strict=True))
    return tuple(stretch for stretch in found if stretch.until > stretch.since)
