"""The beginning of the exhaustive walk, and a few broken guards: `make walk` goes to the end and breaks them all."""

from __future__ import annotations

import pytest

from walk.explore import ViolationError, Walk
from walk.guards import GUARDS
from walk.world import STARTS, row_of, state_of

SOON_FOUND = (
    "plan.all_stopped",
    "decide.running",
    "decide._our_lease",
    "decide.dwelt",
    "lanes.post_lane_open",
    "gate.may_claim",
    "gate.reap",
    "gate.write_accepted",
)


def test_the_beginning_of_the_walk_is_clean():
    walk = Walk(most=700)
    walk.go()
    assert len(walk.known) >= 700
    assert 0 < walk.longest_to_lane < 20


@pytest.mark.parametrize("name", SOON_FOUND)
def test_a_broken_guard_is_found(name):
    (guard,) = (guard for guard in GUARDS if guard.name == name)
    walk = Walk(most=1500)
    with guard.off(), pytest.raises(ViolationError):
        walk.go()


def test_guards_are_on_again_afterwards():
    for guard in GUARDS:
        right = [getattr(place, name) for place, name in guard.places]
        with guard.off():
            assert [getattr(place, name) for place, name in guard.places] != right
        assert [getattr(place, name) for place, name in guard.places] == right


def test_every_guard_has_a_name_of_its_own():
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names) >= 15


def test_rows_are_written_and_read_back():
    walk = Walk(most=1500)
    walk.go()
    rows = {world.row for world in walk.known if world.row}
    assert len(rows) > 10
    for row in rows:
        assert row_of(state_of(row)) == row


def test_a_way_is_told_from_the_start():
    walk = Walk(most=60)
    walk.go()
    way = walk.way_to(list(walk.known)[-1])
    assert way[0] in {str(start) for start in STARTS}
    assert len(way) % 2 == 1
