"""A database that is away at the moment in which a stage ends: what was done is kept, and not done again."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy.exc import DataError, OperationalError

from voxint.work import runner


def away(*_args):
    raise OperationalError("UPDATE", {}, ConnectionError("the server closed the connection"))


def failing(world, monkeypatch, times, error=away):
    usual = world.parts.gate.complete
    tries = []

    def complete(claim, data):
        tries.append(claim.kind)
        if len(tries) <= times:
            error()
        return usual(claim, data)

    monkeypatch.setattr(world.parts.gate, "complete", complete)
    monkeypatch.setattr(runner, "AGAIN_SECONDS", 0.05)
    return tries


def test_a_result_is_offered_again_until_it_is_stored(world, make_wav, monkeypatch):
    run = world.runs.add(make_wav())
    world.work("gpu", 2)
    tries = failing(world, monkeypatch, 3)
    assert world.work("gpu") == ["transcribe"]
    assert tries == ["transcribe"] * 4
    assert world.item(run.id, "transcribe").state == "done"
    assert len(world.services.asked["whisper"]) == 1


def test_a_result_that_cannot_be_stored_at_all_is_not_offered_for_ever(world, make_wav, monkeypatch):
    def wrong():
        raise DataError("UPDATE", {}, ValueError("no such text"))

    world.runs.add(make_wav())
    tries = failing(world, monkeypatch, 3, wrong)
    with pytest.raises(DataError):
        world.work("gpu")
    assert tries == ["acquire"]


def test_who_loses_his_claim_meanwhile_gives_up(world, make_wav, monkeypatch):
    run = world.runs.add(make_wav())
    tries = failing(world, monkeypatch, 10_000)
    ended = []

    def work():
        try:
            world.work("gpu")
        except OperationalError as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    end = time.monotonic() + 60
    while not tries and time.monotonic() < end:
        time.sleep(0.05)
    world.parts.lifecycle.cancel(run.id)
    worker.join(50)
    assert not worker.is_alive()
    assert len(ended) == 1
    assert world.runs.get(run.id).status == "cancelled"
