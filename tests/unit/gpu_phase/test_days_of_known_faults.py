"""Days that went wrong elsewhere, from public reports, played through on the machine with its clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from phase_day import POLICY, Day, Item

from voxint.gpu_phase.model import HOLDER, Lane, Phase, RequestKind
from voxint.gpu_phase.plan import Call

TICK = timedelta(seconds=5)
QUICK = replace(POLICY, tick=TICK, min_dwell=timedelta(seconds=120), max_audio=timedelta(seconds=300))


def right(_what, answers):
    return answers[0]


def answering(**answers):
    """All is well, but for the calls named: `release="pending"`."""
    return lambda what, possible: answers.get(what, possible[0])


def until(day, phase, choose=right, ticks=200):
    for number in range(ticks):
        if day.row is not None and day.row.phase is phase:
            return number
        day.tick(choose)
        day.look()
        day.now += TICK
    raise AssertionError(f"no {phase} within {ticks} ticks: {day.row}")


def day_in(phase, **fields):
    """A day that has come to a phase on the usual way, with one recording that has not begun."""
    day = Day(policy=QUICK, **fields)
    day.items.append(Item(Lane.GPU, day.now))
    until(day, phase)
    return day


def work_on(day, lanes=tuple(Lane)):
    for item in day.items:
        if item.state == "running":
            day.finish(item)
    for lane in lanes:
        for _ in range(2):
            day.claim(lane)


def test_two_workloads_do_not_evict_each_other():
    """One recording every 20 s for 10 minutes, language-model work always waiting (31)."""
    day = Day(policy=QUICK)
    begun = day.now
    early = []
    for number in range(120):
        if number % 4 == 0:
            day.items.append(Item(Lane.GPU, day.now))
        day.items.append(Item(Lane.POST, day.now))
        before = day.row
        day.tick(right)
        if before is not None and before.phase is Phase.AUDIO and day.row.phase is not Phase.AUDIO:
            early.append(before.age(day.now) < QUICK.min_dwell)
        work_on(day)
        day.look()
        day.now += TICK
    cycles = sum(step.startswith("audio ->") for step in day.steps)
    assert 1 <= cycles <= (day.now - begun) / QUICK.min_dwell
    assert not any(early)
    assert {item.lane for item in day.items if item.state == "done"} == set(Lane)


def test_uploads_that_keep_coming_do_not_keep_audio_for_ever():
    """Max audio counts from entering the phase; what has begun finishes, then the post lane has its turn (32)."""
    day = day_in(Phase.AUDIO)
    entered = day.row.phase_since
    while day.row.phase is Phase.AUDIO:
        day.items.append(Item(Lane.GPU, day.now))
        day.tick(right)
        work_on(day, [Lane.GPU])
        day.look()
        day.now += TICK
    assert QUICK.max_audio <= day.now - TICK - entered < QUICK.max_audio + 2 * TICK
    not_begun = [item for item in day.items if item.state == "queued" and not item.begun]
    for _ in range(20):
        day.tick(right)
        work_on(day)
        day.now += TICK
    assert day.row.phase is Phase.LLM
    assert not_begun
    assert all(item.state == "queued" and not item.begun for item in not_begun)


def test_an_acquire_that_stays_pending_is_the_same_request_each_tick_and_ends():
    """202 without end (27): no second operation, no backoff grows, and the limit goes through releasing."""
    day = day_in(Phase.ACQUIRING)
    pending = answering(acquire="pending")
    day.calls.clear()
    while day.row.phase is Phase.ACQUIRING:
        assert (day.row.failures, day.row.retry_after) == (0, None)
        day.tick(pending)
        day.now += TICK
    assert day.calls.count(Call.ACQUIRE) == QUICK.acquire_limit / TICK
    assert day.row.phase is Phase.RELEASING
    until(day, Phase.LLM)
    assert day.row.failures == 1


def test_the_operator_gets_out_of_a_pending_acquire():
    day = day_in(Phase.ACQUIRING)
    day.tick(answering(acquire="pending"))
    day.ask(RequestKind.RELEASE)
    day.calls.clear()
    day.tick(right)
    assert (day.row.phase, day.calls) == (Phase.RELEASING, [])


@pytest.mark.parametrize("crash", [True, False], ids=["killed before the save", "the answer was lost"])
def test_a_lease_that_was_granted_unseen_is_found_and_given_back(crash):
    """An orphan lease (23): the id is learned from status, and exactly that lease is released."""
    day = day_in(Phase.ACQUIRING)
    if crash:
        day.tick(right, crash_after=1)
        assert day.row.phase is Phase.ACQUIRING
    else:
        day.tick(answering(acquire="answer lost"))
        assert day.row.phase is Phase.RELEASING
    assert day.holder == (HOLDER, "lease-1")
    day.ask(RequestKind.RELEASE)
    until(day, Phase.LLM)
    assert day.holder is None
    assert day.leases == 1


def test_a_lease_of_an_earlier_life_is_found_by_the_first_ticks():
    """An empty table, and the broker says that voxint holds `old1` (23 c)."""
    day = Day(policy=QUICK, holder=(HOLDER, "old1"))
    day.tick(right)
    day.tick(right)
    assert (day.row.phase, day.row.lease_id) == (Phase.STOPPING_SERVICES, "old1")
    until(day, Phase.LLM)
    assert (day.holder, day.row.failures) == (None, 0)


def test_a_lost_lease_takes_the_work_back_and_is_never_renewed_again():
    """The lease is lost while two recordings are worked on (24)."""
    day = day_in(Phase.AUDIO)
    day.items.append(Item(Lane.GPU, day.now))
    work_on(day, [Lane.GPU])
    assert [item.state for item in day.items] == ["running", "running"]
    day.holder = None
    day.tick(right)
    assert day.row.phase is Phase.STOPPING_SERVICES
    assert [item.state for item in day.items] == ["queued", "queued"]
    day.calls.clear()
    until(day, Phase.LLM)
    assert Call.RENEW not in day.calls
    assert day.calls.count(Call.RELEASE) == 1


def test_renewals_without_an_answer_are_borne_until_the_lease_has_passed():
    """One blip is no loss, silence for the whole length is (26)."""
    day = day_in(Phase.AUDIO)
    silent = answering(acquire="right", renew="no answer")
    day.tick(silent)
    assert day.row.phase is Phase.AUDIO
    assert day.row.last_error == "could not renew the lease: no answer"
    day.now += TICK
    day.tick(right)
    assert day.row.phase is Phase.AUDIO
    ends = day.row.lease_expires_at
    while day.row.phase is Phase.AUDIO:
        day.now += TICK
        day.tick(silent)
    assert day.row.phase is Phase.STOPPING_SERVICES
    assert ends <= day.now < ends + TICK


def test_a_hand_back_that_failed_is_tried_again_by_itself():
    """Two failed releases, then the operator has mended it by hand and the broker knows no lease (34)."""
    day = day_in(Phase.AUDIO)
    broken = answering(release="no answer")
    until(day, Phase.ERROR, broken, ticks=400)
    until(day, Phase.STOPPING_SERVICES, broken)
    until(day, Phase.ERROR, broken)
    assert day.row.failures == 2
    day.holder = None
    until(day, Phase.LLM)
    assert day.row.failures == 2, "the count stays until a whole cycle was clean"
    until(day, Phase.AUDIO)
    day.ask(RequestKind.RELEASE)
    until(day, Phase.LLM)
    assert day.row.failures == 0


def test_release_in_error_does_not_wait():
    day = day_in(Phase.AUDIO)
    until(day, Phase.ERROR, answering(release="no answer"), ticks=400)
    day.ask(RequestKind.RELEASE)
    day.tick(right)
    assert day.row.phase is Phase.STOPPING_SERVICES


def test_a_service_that_others_start_is_stopped_in_the_next_tick():
    """A restart policy, an updater, `compose up -d` (61): no failure, and nothing is asked of the broker meanwhile."""
    day = Day(policy=QUICK)
    until(day, Phase.LLM)
    day.services["whisper"] = True
    day.tick(right)
    assert day.row.phase is Phase.STOPPING_SERVICES
    assert "whisper runs" in day.row.note
    until(day, Phase.LLM)
    assert (day.row.failures, day.services["whisper"]) == (0, False)


def test_where_the_services_cannot_be_asked_nothing_is_handed_back():
    """Docker's socket is gone in the hand-back (68): the phase waits, then says so, and recovers by itself."""
    day = day_in(Phase.AUDIO)
    day.ask(RequestKind.RELEASE)
    until(day, Phase.STOPPING_SERVICES)
    blind = answering(unknown=True)
    day.calls.clear()
    until(day, Phase.ERROR, blind)
    assert Call.RELEASE not in day.calls
    until(day, Phase.LLM)
    assert day.holder is None


def test_the_lease_of_somebody_else_is_never_touched():
    """Status names another holder (59)."""
    day = Day(policy=QUICK, holder=("other", "zz9"))
    for _ in range(10):
        day.tick(right)
        day.now += TICK
    assert day.row.phase is Phase.LLM
    assert day.row.note == "the broker says that other holds the GPU"
    assert Call.RELEASE not in day.calls
    assert day.holder == ("other", "zz9")
