"""The reference broker as a process: it owns a service, switches, is killed, and finds everything again."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time

import pytest
from broker_process import BrokerProcess


@pytest.fixture
def make(tmp_path):
    made = []

    def start(**options):
        broker = BrokerProcess(tmp_path, **options)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        broker.close()


def ledger(broker):
    lines = (broker.folder / "card.ledger").read_text(encoding="utf-8").splitlines()
    return [(event["event"], event["pid"]) for event in map(json.loads, lines)]


def test_a_whole_turn(make):
    broker = make()
    broker.until_phase("free")
    (first,) = broker.service_pids()
    code, body = broker.acquire()
    assert (code, body["state"]) == (202, "pending")
    lease = broker.granted()
    assert broker.service_pids() == ()
    status = broker.status()
    assert (status["state"], status["holder"], status["lease_id"]) == ("held", "voxint", lease)
    assert broker.acquire(lease)[1]["lease_id"] == lease
    assert broker.acquire("another")[0] == 404
    assert broker.acquire(holder="other")[:1] == (409,)
    assert broker.release("another")[0] == 404
    assert broker.release(lease)[0] == 202
    broker.until(lambda: broker.release(lease), 200)
    (second,) = broker.service_pids()
    assert second != first
    assert broker.release("another")[0] == 404
    assert [event for event, _ in ledger(broker)] == ["start", "end", "start"]


def test_after_a_kill_the_service_is_adopted_and_can_still_be_stopped(make):
    broker = make()
    broker.until_phase("free")
    before = broker.service_pids()
    broker.kill()
    assert broker.service_pids() == before
    broker.start()
    assert broker.status()["phase"] == "free"
    assert broker.service_pids() == before
    broker.granted()
    assert broker.service_pids() == ()


def test_a_lease_outlives_a_kill(make):
    broker = make()
    lease = broker.granted()
    broker.kill()
    broker.start()
    assert broker.acquire(lease)[0] == 200
    broker.until(lambda: broker.release(lease), 200)


@pytest.mark.parametrize("stops", [True, False])
def test_an_ordinary_end_leaves_the_service_or_stops_it_as_configured(make, stops):
    broker = make(top=f"stop_services_on_exit = {str(stops).lower()}")
    broker.until_phase("free")
    before = broker.service_pids()
    assert broker.terminate() == 0
    assert broker.service_pids() == (() if stops else before)


def test_a_service_that_ignores_the_signal_is_killed(make):
    broker = make(stub=("--ignore-term",))
    text = broker.config.read_text(encoding="utf-8") + "stop_seconds = 0.3\n"
    broker.terminate()
    broker.config.write_text(text, encoding="utf-8")
    broker.start()
    begun = time.monotonic()
    broker.granted()
    assert time.monotonic() - begun >= 0.3
    assert broker.service_pids() == ()


def test_no_lease_while_the_card_is_still_taken(make):
    broker = make(memory="interval_seconds = 1")
    broker.until_phase("free")
    # Somebody else got hold of the card between the service's end and the proof.
    with (broker.folder / "card.lock").open("rb") as card:
        os.kill(broker.service_pids()[0], signal.SIGSTOP)
        code, _ = broker.acquire()
        assert code == 202
        os.kill(broker.service_pids()[0], signal.SIGCONT)
        fcntl.flock(card, fcntl.LOCK_SH)  # the broker looks twice, a second apart: who waits for the lock has it before
        assert broker.status()["phase"] == "acquiring"
        for _ in range(10):
            assert broker.acquire()[0] == 202
            time.sleep(0.02)
        assert "lock" in broker.status()["detail"]
        fcntl.flock(card, fcntl.LOCK_UN)
    broker.granted()


def test_an_expired_lease_brings_the_service_back_only_when_the_memory_is_free(make):
    broker = make()
    with (broker.folder / "card.lock").open("wb") as card:
        lease = broker.lease_in_use(card)
        status = broker.until_phase("expired")
        while "memory is not free" not in status["reason"]:
            status = broker.status()
            assert (status["phase"], status["state"]) == ("expired", "free")
            time.sleep(0.02)
        assert broker.service_pids() == ()
        assert broker.acquire(lease)[0] == 404
        assert broker.log().count("memory is not free") == 1
        fcntl.flock(card, fcntl.LOCK_UN)
    broker.until_phase("free")
    assert len(broker.service_pids()) == 1


def test_a_child_that_dies_is_started_again(make):
    broker = make()
    broker.until_phase("free")
    (first,) = broker.service_pids()
    os.kill(first, signal.SIGKILL)
    limit = time.monotonic() + 60
    while not broker.service_pids() or broker.service_pids() == (first,):
        assert time.monotonic() < limit
        time.sleep(0.05)
    broker.until_phase("free")


def test_a_service_that_cannot_start_is_an_error_with_its_words(make):
    broker = make(stub=("--start-fails",))
    reason = broker.until_phase("error")["reason"]
    assert "lm ended before it was ready" in reason
    lease = broker.granted()
    body = broker.until(lambda: broker.release(lease), 500)
    assert body["code"] == "restore_failed"


def test_a_request_that_nobody_repeats_is_given_up(make):
    broker = make(lease="give_up_seconds = 1")
    broker.until_phase("free")
    assert broker.acquire()[0] == 202
    broker.until_phase("held")
    broker.until_phase("free")
    assert len(broker.service_pids()) == 1


def test_a_second_broker_in_the_folder_does_not_start(make):
    broker = make()
    other = BrokerProcess(broker.folder)
    other.start()
    assert other.process.wait(10) == 1
    assert "another broker uses" in broker.log()
