"""`voxint runs add --wait`: follows recordings to their end, and tells each step on stderr."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from voxint.cli.output import CouldNotError, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxint.recordings.run import Run
    from voxint.recordings.runs import RunStore

EVERY_SECONDS = 1.0
ENDED = frozenset({"done", "failed", "cancelled"})


def until_ended(store: RunStore, added: Sequence[Run], every_seconds: float = EVERY_SECONDS) -> list[Run]:
    """Look at the recordings again and again until all of them have ended; gives them as they are then.

    Raises:
        CouldNotError: one of them was deleted meanwhile.
    """
    never = Event()
    told: dict[int, str] = {}
    now = list(added)
    while True:
        for run in now:
            words = step(run)
            if told.get(run.id) != words:
                told[run.id] = words
                note(f"{run.id}  {words}")
        if all(run.status in ENDED for run in now):
            return now
        never.wait(every_seconds)
        now = [_look(store, run) for run in now]


def step(run: Run) -> str:
    """Where a recording is, in words: its end with the reason, else the stage and what it does there."""
    if run.status in ENDED:
        return run.status + (f": {run.error}" if run.error else "")
    if run.progress is not None:
        return f"{run.stage} {run.progress:.0%}"
    waits = f": {run.waiting_for}" if run.waiting_for else ""
    return f"{run.stage} {run.status}{waits}"


def _look(store: RunStore, run: Run) -> Run:
    found = store.get(run.id)
    if found is None:
        raise CouldNotError(f"recording {run.id} was deleted")
    return found
