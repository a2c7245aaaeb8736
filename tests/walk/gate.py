"""The gate's rules, as far as turn-taking depends on them. The lanes' rules are the product's own.

A claim is one short transaction: it looks at the stored phase and marks the work. A save takes the same row exclusively
and looks once more at the lane that it counted as drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxint.gpu_phase import lanes
from walk.world import BETWEEN, DEAD, NOW, POLICY, QUEUED, RUNNING, STALE

if TYPE_CHECKING:
    from voxint.gpu_phase.model import Lane, PhaseState


def may_claim(lane: Lane, item: int, state: PhaseState | None) -> bool:
    """Whether a worker gets this work: anything in an open lane, only begun segments in one that is drained.

    A worker reads the clock before it looks: a slow one may take a segment up whose time has just run out.
    """
    if item not in {QUEUED, BETWEEN, STALE}:
        return False
    return lanes.is_open(lane, state, NOW, POLICY) or (item != QUEUED and lanes.goes_on(lane, state, NOW))


def in_progress(item: int) -> bool:
    """What a drain waits for: what runs, alive or dead, and a segment between two stages."""
    return item in {RUNNING, DEAD, BETWEEN}


def still_drained(item: int) -> bool:
    """The second look, at the save, at the lane that the step counted as drained."""
    return not in_progress(item)


def cut(item: int) -> int:
    """Running work, and begun segments, go back to the queue: the services are going away."""
    return QUEUED if in_progress(item) or item == STALE else item


def reap(item: int) -> int:
    """The work of a dead worker goes back; its segment goes on."""
    return BETWEEN if item == DEAD else item


def after_a_while(item: int) -> int:
    """A segment that nobody takes up does not count as begun for ever."""
    return {BETWEEN: STALE, STALE: QUEUED}.get(item, item)


def write_accepted(*, holds_claim: bool) -> bool:
    """Whether a worker may end the work: its claim token is compared in the write."""
    return holds_claim


def consumes(*, newer: bool) -> bool:
    """Whether the save ends the pending request. One that was recorded while the tick was at work is not the tick's."""
    return not newer
