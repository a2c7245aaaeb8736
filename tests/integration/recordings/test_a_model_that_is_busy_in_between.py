"""An endpoint that takes so many requests a minute: a long transcript is done all the same, and no answer is paid for twice."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta

import pytest
from scripted_services import answer_json, says

from voxint.llm import client

LINES = ("one line of four", "two lines of four", "three lines of four", "four lines of four")


def busy(seconds):
    return answer_json({"error": {"message": "rate limit reached"}}, 429, **{"Retry-After": str(seconds)})


def echo(request):
    return says(json.dumps({"lines": json.loads(request["fields"]["messages"][-1]["content"])["lines"]}))


@pytest.fixture
def waiting(make_world, make_wav):
    """A recording whose text is asked about in four requests, and nothing but that left to do."""
    world = make_world(LLM_BATCH_LINES="1")
    segments = [{"start": 2.0 * n, "end": 2.0 * n + 1, "text": words} for n, words in enumerate(LINES)]
    world.services.script["whisper"] = [answer_json({"language": "en", "segments": segments})]
    world.services.always["language_model"] = echo
    run = world.runs.add(make_wav())
    world.work("gpu", 4)
    return world, run.id


def asked(world):
    messages = [each["fields"]["messages"][-1]["content"] for each in world.services.asked["language_model"]]
    return [line["id"] for content in messages for line in json.loads(content)["lines"]]


def test_in_the_middle_of_the_work_it_is_waited_for_and_nothing_is_asked_again(waiting):
    world, run = waiting
    world.services.script["language_model"] = [echo, busy(1), echo, busy(1), busy(1)]
    assert world.work("post") == ["enhance_match"]
    assert asked(world) == [1, 2, 2, 3, 3, 3, 4]
    (execution,) = [each for each in world.runs.show(run).executions if each.kind == "enhance_match"]
    assert (execution.attempt, execution.outcome) == (1, "done")
    assert world.runs.get(run).warnings == ()


def test_before_its_first_answer_the_work_waits_in_the_queue(waiting):
    world, run = waiting
    world.services.script["language_model"] = [busy(1)]
    assert world.work("post") == ["enhance_match"]
    assert asked(world) == [1]
    item = world.item(run, "enhance_match")
    assert (item.state, item.attempts) == ("queued", 0)


def test_patience_ends_and_then_the_work_waits_in_the_queue(waiting, monkeypatch):
    world, run = waiting
    monkeypatch.setattr(client, "PATIENCE", timedelta(seconds=2))
    world.services.script["language_model"] = [echo, busy(1), busy(1), busy(1)]
    assert world.work("post") == ["enhance_match"]
    assert asked(world) == [1, 2, 2, 2]
    item = world.item(run, "enhance_match")
    assert (item.state, item.attempts) == ("queued", 0)
    assert "rate limit reached" in item.error


def test_who_waits_notices_that_the_work_was_taken_back(waiting):
    world, run = waiting
    told = threading.Event()

    def busy_for_long(_request):
        told.set()
        return busy(100)

    world.services.script["language_model"] = [echo, busy_for_long]
    begun = time.monotonic()
    worker = threading.Thread(target=world.work, args=("post",))
    worker.start()
    assert told.wait(60)
    world.parts.lifecycle.cancel(run)
    worker.join(90)
    assert not worker.is_alive()
    assert time.monotonic() - begun < 95
    assert world.runs.get(run).status == "cancelled"
    assert asked(world) == [1, 2]
