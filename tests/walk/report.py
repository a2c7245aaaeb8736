"""One walk and what came of it, as values that can be written down."""

from __future__ import annotations

import time

from walk.explore import ViolationError, Walk
from walk.guards import GUARDS


def walk_whole() -> dict[str, object]:
    """The machine as it is."""
    begun = time.monotonic()
    walk = Walk()
    violation, way = _violation(walk)
    return {
        "states": len(walk.known),
        "edges": walk.edges,
        "violation": violation,
        "way": way,
        "ticks_to_an_open_lane": walk.longest_to_lane,
        "ticks_to_all_work_done": walk.longest_to_idle,
        "ticks_to_the_post_lane_without_workers": walk.longest_to_post,
        "seconds": round(time.monotonic() - begun, 1),
    }


def walk_without(number: int) -> dict[str, object]:
    """The machine with one guard off: what is wrong with it, and after how many states that was seen."""
    guard = GUARDS[number]
    begun = time.monotonic()
    walk = Walk()
    with guard.off():
        violation, way = _violation(walk)
    return {
        "guard": guard.name,
        "for": guard.what,
        "found": violation,
        "states": len(walk.known),
        "steps": len(way) // 2,
        "way": way,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _violation(walk: Walk) -> tuple[str | None, list[str]]:
    try:
        walk.go()
    except ViolationError as violation:
        return str(violation), walk.way_to(next(reversed(walk.known)))
    return None, []
