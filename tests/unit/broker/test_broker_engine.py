"""The engine over a made-up card: grants on proof, waits on unknown, expires safely, repeats are the same."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from simulated_broker import World, running

from voxint_broker.record import JournalError
from voxint_broker.simulated import Behaviour


def test_a_grant_waits_for_the_memory_and_not_only_for_the_process(tmp_path):
    with running(tmp_path, Behaviour(linger_seconds=0.15)) as world:
        world.until_phase("free")
        begun = time.monotonic()
        world.granted()
        assert time.monotonic() - begun >= 0.15
        assert not world.service.runs


def test_memory_that_stays_taken_fails_the_acquire_names_the_holder_and_brings_the_service_back(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.service.behaviour.memory_taken = "process 77 (game)"
        world.acquire()
        world.until_phase("free")
        code, body = world.acquire()
        assert (code, body["code"]) == (500, "acquire_failed")
        assert "process 77 (game)" in body["error"]
        assert world.service.runs
        world.service.behaviour.memory_taken = ""
        world.granted()


def test_while_the_memory_cannot_be_read_nothing_is_stopped_or_granted(tmp_path):
    with running(tmp_path, Behaviour()) as world:
        world.until_phase("free")
        world.service.behaviour.memory_fails = "the driver does not answer"
        for _ in range(20):
            assert world.acquire()[0] == 202
            time.sleep(0.005)
        assert world.service.runs
        assert world.service.stops == []
        assert "the driver does not answer" in world.broker.status()["detail"]
        world.service.behaviour.memory_fails = ""
        world.granted()


def test_memory_that_cannot_be_read_after_the_stop_is_not_free(tmp_path):
    with running(tmp_path, memory_limit_seconds=30) as world:
        world.until_phase("free")
        world.service.behaviour.stop_seconds = 0.05
        world.acquire()
        world.until(lambda: world.service.stops)
        world.service.behaviour.memory_fails = "lost"
        world.until(lambda: world.service.look().condition.value != "running")
        for _ in range(20):
            assert world.acquire()[0] == 202
            time.sleep(0.005)
        world.service.behaviour.memory_fails = ""
        world.granted()


def test_a_stop_that_is_ignored_is_made_harder(tmp_path):
    with running(tmp_path, Behaviour(ignores=frozenset({"SIGTERM"}))) as world:
        world.granted()
        assert world.service.stops == ["SIGTERM", "SIGKILL"]


def test_a_service_that_cannot_be_stopped_leads_to_no_grant_and_no_second_start(tmp_path):
    with running(tmp_path, Behaviour(ignores=frozenset({"SIGTERM", "SIGKILL"}))) as world:
        world.until_phase("free")
        world.acquire()
        world.until_phase("free")
        code, body = world.acquire()
        assert code == 500
        assert "stuck" in body["error"]
        assert world.service.starts == 1


def test_repeats_get_the_same_answers(tmp_path):
    with running(tmp_path) as world:
        lease = world.granted()
        assert world.acquire()[1]["lease_id"] == lease  # its answer was lost
        before = world.acquire(lease)[1]["expires_at"]
        time.sleep(0.01)
        code, body = world.acquire(lease)
        assert (code, body["lease_id"]) == (200, lease)
        assert body["expires_at"] > before
        world.release(lease)
        assert world.released(lease) == 200
        assert world.release(lease)[0] == 200
        assert world.acquire(lease)[0] == 404
        assert world.release("old")[0] == 404
        assert world.service.starts == 2


def test_an_old_id_releases_nothing(tmp_path):
    with running(tmp_path) as world:
        first = world.granted()
        world.released(first)
        second = world.granted()
        assert world.release(first)[0] == 404
        assert world.broker.status()["lease_id"] == second
        assert world.acquire(first)[0] == 404


def test_fences_rise(tmp_path):
    with running(tmp_path) as world:
        fences = []
        for _ in range(3):
            lease = world.granted()
            fences.append(world.acquire(lease)[1]["fence"])
            world.released(lease)
        assert fences == sorted(set(fences))


def test_another_holder_is_refused_from_the_first_request_on(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.acquire(holder="a")
        code, body = world.acquire(holder="b")
        assert (code, body["holder"]) == (409, "a")
        assert body["retry_after_seconds"] >= 1
        lease = world.granted(holder="a")
        assert world.acquire(lease, holder="b")[0] == 409
        world.release(lease)
        assert world.acquire(holder="b")[0] in {409, 202}


def test_a_release_during_the_acquire_takes_it_back(tmp_path):
    with running(tmp_path, Behaviour(stop_seconds=30)) as world:
        world.until_phase("free")
        world.acquire()
        status = world.broker.status()
        assert (status["state"], status["phase"]) == ("held", "acquiring")
        assert world.released(status["lease_id"]) == 200
        assert world.broker.status()["phase"] == "free"
        assert world.service.runs


@pytest.mark.parametrize("stop_seconds", [30, 0])
def test_a_request_that_nobody_repeats_is_given_up(tmp_path, stop_seconds):
    with running(tmp_path, Behaviour(), give_up_seconds=1) as world:
        world.until_phase("free")
        world.service.behaviour.stop_seconds = stop_seconds
        world.acquire()
        world.until(lambda: world.broker.status()["phase"] != "free")
        world.service.behaviour.stop_seconds = 0
        world.until(lambda: world.broker.status()["phase"] == "free" and world.service.runs, "free again")


def test_a_lease_that_runs_out_waits_for_the_memory(tmp_path):
    with running(tmp_path, look_seconds=0.05) as world:
        lease = world.lease_that_runs_out("whisper")
        status = world.until_phase("expired")
        assert status["state"] == "free"
        assert world.acquire(lease)[0] == 404
        time.sleep(0.2)
        assert not world.service.runs
        assert "whisper" in world.broker.status()["reason"]
        world.service.behaviour.memory_taken = ""
        world.until_phase("free")
        assert world.service.runs
        assert world.release(lease)[0] == 200


def test_a_release_of_a_lease_that_ran_out_is_a_release(tmp_path):
    with running(tmp_path, look_seconds=60) as world:
        lease = world.lease_that_runs_out("whisper")
        world.until_phase("expired")
        world.service.behaviour.memory_taken = ""
        assert world.released(lease) == 200
        assert world.service.runs


def test_after_an_expiry_a_new_lease_needs_the_proof(tmp_path):
    with running(tmp_path, memory_limit_seconds=30) as world:
        world.lease_that_runs_out("whisper")
        world.until_phase("expired")
        for _ in range(10):
            assert world.acquire()[0] == 202
            time.sleep(0.005)
        world.service.behaviour.memory_taken = ""
        world.granted()


def test_a_start_that_fails_is_told_once_and_tried_again(tmp_path):
    with running(tmp_path, retry_seconds=60) as world:
        lease = world.granted()
        world.service.behaviour.start_fails = "no such model"
        world.release(lease)
        world.until_phase("error")
        code, body = world.release(lease)
        assert (code, body["code"]) == (500, "restore_failed")
        assert "no such model" in body["error"]
        world.service.behaviour.start_fails = ""
        world.until(lambda: world.release(lease)[0] == 200)
        assert world.service.runs


def test_an_error_mends_itself(tmp_path):
    with running(tmp_path, retry_seconds=0.1) as world:
        lease = world.granted()
        world.service.behaviour.start_fails = "busy"
        world.release(lease)
        world.until_phase("error")
        world.service.behaviour.start_fails = ""
        world.until_phase("free")


def test_from_an_error_the_gpu_can_still_be_had(tmp_path):
    with running(tmp_path, retry_seconds=60) as world:
        lease = world.granted()
        world.service.behaviour.start_fails = "busy"
        world.release(lease)
        world.until_phase("error")
        assert world.granted() != lease


def test_the_door_is_kept_shut(tmp_path):
    with running(tmp_path) as world:
        world.granted()
        world.service.start()
        world.until(lambda: world.service.look().condition.value != "running")
        world.until(lambda: "although the GPU is leased: stopped again at " in (world.broker.status()["reason"] or ""))
        assert "stopping it" not in world.broker.status()["reason"]  # it is over, and the lease may go on for hours


def test_a_service_of_ours_that_ends_is_started_again(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.service.end()
        world.until(lambda: world.service.starts == 2)
        world.until_phase("free")


def test_a_service_of_others_that_ends_is_left_alone_until_a_release(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        world.service.keep_running = False
        world.service.end()
        time.sleep(0.05)
        assert world.service.starts == 1
        assert world.release("whatever")[0] == 202  # not before it is made sure that it runs
        world.until(lambda: world.release("whatever")[0] == 404)
        assert world.service.starts == 2


def test_a_restart_of_the_broker_keeps_the_lease(tmp_path):
    with running(tmp_path) as world:
        lease = world.granted()
    with running(tmp_path, service=world.service) as again:
        assert again.acquire(lease)[0] == 200
        assert again.released(lease) == 200


def test_fifty_at_once_one_is_granted(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        answers: dict[str, list[int]] = {}

        def client(name):
            answers[name] = []
            for _ in range(20):
                answers[name].append(world.acquire(holder=name)[0])

        threads = [threading.Thread(target=client, args=(f"holder-{n}",)) for n in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, codes in answers.items() if 409 not in codes]
        assert len(winners) == 1
        assert all(set(codes) == {409} for name, codes in answers.items() if name not in winners)


def test_the_wanted_time_is_bounded(tmp_path):
    with running(tmp_path, max_ttl_seconds=1) as world:
        world.granted(ttl=timedelta(days=10_000))
        assert world.broker.status()["expires_at"] is not None
        world.until(lambda: world.broker.status()["phase"] != "held")


def test_a_journal_that_cannot_be_written_is_an_answer(tmp_path, monkeypatch):
    with running(tmp_path) as world:
        world.until_phase("free")
        monkeypatch.setattr(
            world.broker._journal, "write", lambda _record: (_ for _ in ()).throw(JournalError("the disk is full"))
        )
        code, body = world.acquire()
        assert (code, body["code"]) == (500, "journal_failed")
        assert world.broker.status()["phase"] == "free"
        assert world.service.runs
        monkeypatch.undo()
        world.granted()


def test_a_mistake_in_the_work_does_not_end_it(tmp_path, caplog):
    with running(tmp_path) as world:
        world.until_phase("free")
        look, calls = world.service.look, []

        def broken():
            calls.append(1)
            if len(calls) < 2:
                raise RuntimeError("a mistake")
            return look()

        world.service.look = broken
        world.until(lambda: len(calls) > 2)
        assert "broke off" in caplog.text
        world.granted()


def test_a_stop_can_take_the_services_along(tmp_path):
    world = World(tmp_path)
    world.broker.start()
    world.until_phase("free")
    world.broker.stop(stop_services=True)
    assert world.service.look().condition.value != "running"


def test_answers_come_at_once_whatever_the_work_does(tmp_path):
    with running(tmp_path) as world:
        world.until_phase("free")
        stop, stopping, go_on = world.service.stop, threading.Event(), threading.Event()

        def blocked(level):
            stopping.set()
            assert go_on.wait(60)
            stop(level)

        world.service.stop = blocked
        assert world.acquire()[0] == 202
        assert stopping.wait(30)
        asked = threading.Thread(target=lambda: [world.acquire(), world.broker.status()], daemon=True)
        asked.start()
        asked.join(30)
        answered = not asked.is_alive()
        go_on.set()
        assert answered, "a call waited for the work"
        world.granted()
