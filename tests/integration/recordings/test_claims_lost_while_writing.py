"""The claim is lost in the middle of a stage that writes files, and nothing has told its worker yet."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from voxint.gpu_phase.model import Lane
from voxint.recordings.stages import acquire, finalize, prepare
from voxint.work.runner import work_once


def without_a_heartbeat(world, lane):
    """One piece of work, by a worker that hears nothing of its claim while it works."""
    work_once(world.parts.gate, lane, world.parts.work, every=timedelta(minutes=5), limit=timedelta(minutes=10))


def ready_for(world, run_id, kind):
    for _ in range(10):
        if world.runs.get(run_id).stage == kind:
            return
        world.work("gpu") or world.work("post")
    raise AssertionError(f"the recording does not come to {kind}")


@pytest.mark.parametrize(
    ("kind", "place", "name"),
    [("acquire", acquire, "_copy"), ("prepare", prepare, "decode"), ("finalize", finalize, "frozen")],
)
def test_a_recording_that_was_deleted_meanwhile_leaves_nothing_in_the_media_folder(
    world, make_wav, monkeypatch, kind, place, name
):
    run = world.runs.add(make_wav())
    ready_for(world, run.id, kind)
    usual = getattr(place, name)

    def deleted_meanwhile(*args, **named):
        made = usual(*args, **named)
        world.parts.lifecycle.cancel(run.id)
        world.runs.delete(run.id)
        return made

    monkeypatch.setattr(place, name, deleted_meanwhile)
    without_a_heartbeat(world, Lane.POST if kind == "finalize" else Lane.GPU)
    assert world.runs.get(run.id) is None
    assert not run.folder.exists()
    assert [path.name for path in (world.media / "runs").iterdir()] in ([], [".deleted"])


@pytest.mark.parametrize(("kind", "place", "name"), [("acquire", acquire, "acquire"), ("prepare", prepare, "prepare")])
def test_one_that_was_deleted_before_the_first_byte_gets_no_folder_again(
    world, make_wav, monkeypatch, kind, place, name
):
    from voxint.recordings.stages.table import STAGES

    run = world.runs.add(make_wav())
    ready_for(world, run.id, kind)

    def deleted_before(context):
        world.parts.lifecycle.cancel(run.id)
        world.runs.delete(run.id)
        return getattr(place, name)(context)

    monkeypatch.setitem(STAGES, kind, deleted_before)
    without_a_heartbeat(world, Lane.GPU)
    assert world.runs.get(run.id) is None
    assert not run.folder.exists()


def test_an_old_copy_of_finalize_takes_no_file_of_the_newer_one_away(world, make_wav, monkeypatch):
    run = world.runs.add(make_wav())
    ready_for(world, run.id, "finalize")
    usual = finalize.frozen
    done = []

    def overtaken(context):
        made = usual(context)
        if not done:
            done.append(True)
            with world.engine.begin() as connection:
                connection.execute(text("UPDATE work_item SET heartbeat_at = heartbeat_at - interval '1 hour'"))
            assert world.parts.gate.reap() == 1
            assert world.work("post") == ["finalize"]
        return made

    monkeypatch.setattr(finalize, "frozen", overtaken)
    without_a_heartbeat(world, Lane.POST)
    assert world.runs.get(run.id).status == "done"
    files = world.runs.results(run.id)["finalize"]["files"]
    there = {path.name for path in run.folder.iterdir() if path.name.startswith("transcript-")}
    assert there == set(files.values())
    assert [version.number for version in world.parts.transcripts.versions(run.id)] == [1]
