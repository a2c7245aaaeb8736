"""One line an event: the tick's, as words and as JSON, whatever stands in its values."""

from __future__ import annotations

import io
import json
import logging
import re
from dataclasses import replace

import pytest
from phase_views import NOON, state_of

from voxint import logs
from voxint.gpu_phase.model import Cause, Phase, Transition
from voxint.gpu_phase.plan import Call
from voxint.gpu_phase.tick import Report, canonical

NASTY = 'no "answer" a=b\n2026-01-01 [/red] \x1b[31m ü'


def report(reason=None, note=None):
    before = state_of(Phase.ACQUIRING)
    after = state_of(Phase.STARTING_SERVICES, note=note)
    if reason is not None:
        after = replace(state_of(Phase.RELEASING), failures=1, last_error=reason)
    cause = Cause.ACQUIRE_FAILED if reason is not None else Cause.GRANTED
    return Report("saved", 0.041, NOON, after, Transition(before, after, cause), (Call.INSPECT, Call.ACQUIRE))


@pytest.fixture
def printed(monkeypatch):
    """What the product's own log set-up prints for a tick."""

    def run(told, *, as_json):
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        root = logging.getLogger()
        kept, level = root.handlers[:], root.level
        try:
            root.handlers = []
            logs.set_up(json=as_json)
            logs.line(logging.getLogger("voxint.work.tasks"), "tick", canonical(told))
        finally:
            root.handlers, root.level = kept, level
        return stream.getvalue()

    return run


def test_a_tick_as_words(printed):
    line = printed(report(), as_json=False)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d [\d:,]+ INFO voxint\.work\.tasks tick outcome=saved phase=acquiring calls=inspect,acquire"
        r" cause=granted moved_to=starting_services took_ms=41\n",
        line,
    )


def test_a_tick_as_json(printed):
    document = json.loads(printed(report(note="waiting for whisper"), as_json=True))
    assert {name: document[name] for name in document if name != "at"} == {
        "level": "info",
        "logger": "voxint.work.tasks",
        "event": "tick",
        "outcome": "saved",
        "phase": "acquiring",
        "calls": "inspect,acquire",
        "cause": "granted",
        "moved_to": "starting_services",
        "note": "waiting for whisper",
        "took_ms": 41,
    }
    assert document["at"].startswith("20")


def test_a_reason_with_quotes_and_line_breaks_stays_on_its_line(printed):
    words = printed(report(NASTY), as_json=False)
    assert len(words.splitlines()) == 1
    assert 'failed="no \\"answer\\" a=b\\n' in words
    assert json.loads(printed(report(NASTY), as_json=True))["failed"] == NASTY
