"""What really happened, as a simulation takes it: the recordings that came, and how long the outside took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.gpu_phase.simulate import Arrival, World

if TYPE_CHECKING:
    from sqlalchemy import Engine

# The services work side by side: a recording keeps the slower of its two long stages busy.
_ARRIVALS = """
SELECT run.created_at AS at,
    max(extract(epoch FROM e.ended_at - e.started_at)) FILTER (WHERE e.kind IN ('transcribe', 'diarize_embed')) AS gpu,
    sum(extract(epoch FROM e.ended_at - e.started_at))
        FILTER (WHERE e.kind NOT IN ('acquire', 'prepare', 'transcribe', 'diarize_embed')) AS post
FROM run JOIN stage_execution e ON e.run_id = run.id AND e.outcome = 'done'
WHERE run.created_at >= :since AND run.status = 'done'
GROUP BY run.id ORDER BY run.created_at LIMIT :most
"""
_CHANGES = """
SELECT from_phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS usual FROM gpu_phase_event
WHERE at >= :since AND seconds IS NOT NULL
    AND (from_phase, to_phase) IN (('acquiring', 'starting_services'), ('starting_services', 'audio'),
        ('stopping_services', 'releasing'), ('releasing', 'llm'))
GROUP BY from_phase
"""
_FIELDS = {
    "acquiring": "llm_stop",
    "starting_services": "services_start",
    "stopping_services": "services_stop",
    "releasing": "llm_start",
}
MOST_RECORDINGS = 10_000


@dataclass(frozen=True, slots=True)
class Past:
    """A stretch of time as it was."""

    since: datetime
    until: datetime
    arrivals: tuple[Arrival, ...]
    world: World
    measured: frozenset[str]
    """The fields of `world` that come from the history; the others are assumed."""


def past(engine: Engine, since: datetime, until: datetime) -> Past:
    """Read the finished recordings that came since then, and the median length of each change of hands."""
    with engine.begin() as connection:
        rows = connection.execute(text(_ARRIVALS), {"since": since, "most": MOST_RECORDINGS}).all()
        usual = {row.from_phase: float(row.usual) for row in connection.execute(text(_CHANGES), {"since": since})}
    found = {_FIELDS[phase]: timedelta(seconds=seconds) for phase, seconds in usual.items()}
    arrivals = tuple(Arrival(row.at, _length(row.gpu), _length(row.post)) for row in rows if row.gpu is not None)
    return Past(since, until, arrivals, World(**found), frozenset(found))


def _length(seconds: object) -> timedelta:
    return timedelta(seconds=float(str(seconds))) if seconds is not None else timedelta(0)
