"""Days: whatever happens and in whatever order, the rules hold, and a world that is well again finishes all work."""

from __future__ import annotations

from datetime import timedelta

import phase_day
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from phase_day import Day, Item

from voxint.gpu_phase.model import Lane, Phase, RequestKind

SHORT = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    stateful_step_count=40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
seconds = st.sampled_from([1, 5, 30, 61, 100, 130, 700])


class Days(RuleBasedStateMachine):
    """What may happen on a day."""

    def __init__(self):
        super().__init__()
        self.day = Day()

    @rule(length=seconds)
    def time_passes(self, length):
        self.day.now += timedelta(seconds=length)
        self.day.reap()

    @rule(lane=st.sampled_from(Lane))
    def work_comes(self, lane):
        if len(self.day.items) < 6:
            self.day.items.append(Item(lane, self.day.now))

    @rule(number=st.integers(1, 6))
    def ticks_of_a_good_world(self, number):
        for _ in range(number):
            self.day.tick(lambda _what, answers: answers[0])
            self.day.now += timedelta(seconds=5)

    @rule(data=st.data(), crash=st.none() | st.integers(0, 3), event=st.sampled_from(["", "claim", "ask", "finish"]))
    def tick_of_a_hostile_world(self, data, crash, event):
        def choose(what, answers):
            return data.draw(st.sampled_from(answers), label=what)

        def meanwhile():
            if event == "ask":
                self.day.ask(data.draw(st.sampled_from(RequestKind)))
            for lane in Lane:
                if event == "claim":
                    self.day.claim(lane)
            if event == "finish":
                self.stage_ends()

        self.day.tick(choose, meanwhile, crash)

    @rule(lane=st.sampled_from(Lane))
    def worker_claims(self, lane):
        self.day.claim(lane)

    @rule()
    def stage_ends(self):
        for item in self.day.items:
            if item.state == "running" and item.alive:
                self.day.finish(item)
                return

    @rule()
    def worker_dies(self):
        for item in self.day.items:
            if item.state == "running" and item.alive:
                item.alive = False
                return

    @rule(kind=st.sampled_from(RequestKind))
    def operator_asks(self, kind):
        self.day.ask(kind)

    @precondition(lambda self: self.day.row is not None and self.day.row.phase is Phase.LLM)
    @rule(length=seconds)
    def operator_holds(self, length):
        self.day.hold_until = self.day.now + timedelta(seconds=length)

    @rule()
    def broker_loses_the_lease(self):
        self.day.holder = None

    @precondition(lambda self: self.day.holder is None)
    @rule()
    def broker_gives_the_gpu_away(self):
        self.day.holder = ("other", "zz9")

    @rule(name=st.sampled_from(["whisper", "pyannote", "titanet"]), runs=st.booleans())
    def others_meddle_with_a_service(self, name, runs):
        self.day.services[name] = runs
        self.day.ours.discard(name)

    @invariant()
    def all_is_right(self):
        self.day.look()

    def teardown(self):
        self.day.well(400)


def test_days():
    run_state_machine_as_test(Days, settings=SHORT)


def test_a_day_without_the_second_look_is_caught(monkeypatch):
    """The twin: a save that does not look again lets work slip past a drain."""

    def careless(self, made, request):
        in_progress, self.in_progress = self.in_progress, lambda _lane: False
        right(self, made, request)
        self.in_progress = in_progress

    right = Day.save
    monkeypatch.setattr(Day, "save", careless)
    day = Day()
    day.tick(lambda _what, answers: answers[0])
    day.tick(lambda _what, answers: answers[0])
    day.items.append(Item(Lane.POST, day.now - phase_day.GRACE, begun=True))
    day.ask(RequestKind.AUDIO_NOW)
    day.tick(lambda _what, answers: answers[0])
    assert day.row.phase is Phase.DRAINING_POST

    def late_claim():
        day.items[0].state = "running"

    day.tick(lambda _what, answers: answers[0], late_claim)
    with pytest.raises(AssertionError):
        day.look()


def test_a_plain_day():
    """One recording through the whole turn, without anything going wrong."""
    day = Day()
    day.items.append(Item(Lane.GPU, day.now))
    assert day.well(60) < 30
    assert day.row.failures == 0
