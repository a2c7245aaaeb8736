"""The statements of a claim are put together from the conditions that the door lets through, in their order."""

from datetime import UTC, datetime
from uuid import uuid4

from voxint.gpu_phase.door import Door


def door(*, any_work):
    # A condition that no statement was made with before: statements are kept.
    mark = f"kind = '{uuid4()}'"
    return mark, Door(datetime(2026, 5, 4, tzinfo=UTC), (), any_work=any_work, begun_work=False, ahead=mark)


def test_what_is_first_is_looked_for_condition_by_condition():
    mark, made = door(any_work=True)
    found = str(made.find)
    waiting, ahead = made.conditions
    assert waiting.startswith("state = 'queued' AND NOT begun")
    assert ahead == mark
    first, _, second = found.partition("SKIP LOCKED), (SELECT id FROM work_item")
    assert first.startswith(f"SELECT coalesce((SELECT id FROM work_item WHERE lane = :lane AND {waiting} AND")
    assert second.startswith(f" WHERE lane = :lane AND {mark} AND")
    assert found.endswith("FOR UPDATE SKIP LOCKED))")
    assert "None" not in found


def test_what_is_taken_is_what_is_found():
    mark, made = door(any_work=False)
    found = str(made.find).removeprefix("SELECT ")
    assert mark in found
    assert f"WITH chosen AS MATERIALIZED (SELECT {found} AS id), taken AS (" in str(made.take)
