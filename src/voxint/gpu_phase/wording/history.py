"""PURE: the changes of phase as a table and as JSON. No lease id is in either."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean
from voxint.gpu_phase.view import NO_PHASE, iso
from voxint.gpu_phase.wording import figures, phases

if TYPE_CHECKING:
    from datetime import tzinfo

    from voxint.gpu_phase.store import Event

HEADS = ("at", "from", "lasted", "to", "why")


def row(event: Event, zone: tzinfo | None) -> tuple[str, ...]:
    """One change as a row of the table."""
    why = phases.CAUSE_WORDS[event.cause]
    return (
        figures.moment(event.at, zone),
        event.from_phase.value if event.from_phase else NO_PHASE,
        figures.span(timedelta(seconds=event.seconds)) if event.seconds is not None else phases.ABSENT,
        event.to_phase.value,
        f"{why}: {clean(event.reason)}" if event.reason else why,
    )


def record(event: Event) -> dict[str, object]:
    """One change as a JSON object; `seconds` is how long the phase before it lasted."""
    return {
        "at": iso(event.at),
        "from": event.from_phase.value if event.from_phase else None,
        "to": event.to_phase.value,
        "seconds": event.seconds,
        "cause": event.cause.value,
        "reason": clean(event.reason) if event.reason else None,
        "gpu_waiting": event.gpu_waiting,
        "gpu_running": event.gpu_running,
        "post_waiting": event.post_waiting,
        "post_running": event.post_running,
    }
