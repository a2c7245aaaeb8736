"""Workers on two hosts that share the database, Redis and the media folder: both work, and a cut wire loses nothing.

The stages are stand-ins that do what a recording's title says; workers, beat, PostgreSQL and Valkey are real.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from host_network import DATABASE_URL, SERVERS
from sqlalchemy import text

from voxint.db.session import GONE_SECONDS
from voxint.gpu_phase.store import TICK_LOCK

pytestmark = pytest.mark.timeout(600)

STAGES = 6
REACH = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"


def reaches(host, address, port):
    argv = [*host.words, sys.executable, "-c", REACH, address, str(port)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def nothing_lost_or_done_twice(bench, runs):
    """Every stage of every recording ended as done exactly once, and the stored result is that one's."""
    for run in runs:
        assert bench.status(run).status == "done"
    done = bench.rows("SELECT run_id, kind, claim_token FROM stage_execution WHERE outcome = 'done' ORDER BY 1, 2")
    assert len({(row.run_id, row.kind) for row in done}) == len(done) == STAGES * len(runs)
    stored = bench.rows("SELECT run_id, kind, data->>'token' AS token FROM stage_result ORDER BY 1, 2")
    assert [tuple(row) for row in stored] == [tuple(row) for row in done]


@pytest.mark.parametrize("port", [5432, 6379])
def test_the_servers_are_reached_over_the_wire_alone(servers, hosts, port):
    one, two = hosts
    assert reaches(one, SERVERS, port)
    assert reaches(two, SERVERS, port)
    assert not reaches(two, "127.0.0.1", port)
    two.cut()
    assert not reaches(two, SERVERS, port)
    assert reaches(one, SERVERS, port)
    two.mend()
    assert reaches(two, SERVERS, port)


def test_both_hosts_work_and_no_stage_is_done_twice(bench, hosts, eventually):
    ours = [bench.on(host) for host in hosts]
    for each in ours:
        each.worker(2, name=f"worker-{each.stage_log.stem}")
    ours[0].beat()
    runs = [bench.add("sleep 1 stage=transcribe") for _ in range(16)]
    bench.wake(16)
    eventually(lambda: bench.done(*runs), 180, "the recordings were not worked off")
    nothing_lost_or_done_twice(bench, runs)
    shares = [each.stages() for each in ours]
    assert all(shares), f"one host did nothing: {[len(share) for share in shares]}"
    together = [stage for share in shares for stage in share]
    assert len(together) == len(set(together)) == STAGES * len(runs)


def test_a_wire_that_is_cut_in_the_middle_and_mended_loses_nothing_and_does_nothing_twice(bench, hosts, eventually):
    one, two = (bench.on(host) for host in hosts)
    runs = [bench.add("sleep 12 stage=transcribe")]
    two.worker(1, name="worker-two")
    two.beat(name="beat-two")  # nothing but this host is there yet
    bench.wake(1)
    eventually(lambda: (runs[0], "transcribe") in two.stages(), 60, "the second host did not begin")
    first = one.worker(1, name="worker-one")
    one.beat(name="beat-one")
    hosts[1].cut()
    runs += [bench.add("plain") for _ in range(5)]
    eventually(lambda: (runs[0], "transcribe") in one.stages(), 90, "what the lost host had was not given to the other")
    eventually(lambda: bench.done(*runs), 90, "the first host did not go on alone")
    hosts[1].mend()
    # The lost host finds that its claim is gone, throws away what it did, and takes part again.
    bench.processes.end(first)
    runs += [bench.add("plain") for _ in range(3)]
    eventually(lambda: bench.done(*runs), 120, "the second host did not come back")
    nothing_lost_or_done_twice(bench, runs)
    outcomes = bench.rows(
        "SELECT outcome FROM stage_execution WHERE run_id = :run AND kind = 'transcribe'", run=runs[0]
    )
    assert sorted(row.outcome for row in outcomes) == ["abandoned", "done"]
    assert {run for run, _ in two.stages()} >= set(runs[-3:])


def test_a_short_cut_is_not_even_noticed(bench, hosts, eventually):
    """Shorter than the heartbeat limit: the work goes on where it is."""
    (two,) = (bench.on(host) for host in hosts[1:])
    two.worker(1, name="worker-two", WORK_HEARTBEAT_LIMIT_SECONDS="60")
    run = bench.add("sleep 6 stage=transcribe")
    bench.wake(1)
    eventually(lambda: (run, "transcribe") in two.stages(), 60, "the host did not begin")
    hosts[1].cut()
    time.sleep(3)
    hosts[1].mend()
    eventually(lambda: bench.done(run), 90, "it was not finished")
    nothing_lost_or_done_twice(bench, [run])
    assert two.stages().count((run, "transcribe")) == 1


HOLD = """
import os, sys, time
from sqlalchemy import text
from voxint.db.engine import make_engine
connection = make_engine(sys.argv[1]).connect()
for statement in filter(None, os.environ["FIRST"].split(";")):
    connection.execute(text(statement))
assert connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": int(sys.argv[2])}).scalar_one()
connection.commit()
print("holds", flush=True)
time.sleep(600)
"""
FOR_EVER = "SET tcp_keepalives_idle = 7200; SET tcp_user_timeout = 0"
"""What a server does by itself: it asks a silent connection after two hours."""


def a_host_that_dies_with_the_lock_of_the_tick(bench, host, eventually, first=""):
    """Its power is cut: it says nothing any more, to nobody."""
    argv = [*host.words, sys.executable, "-c", HOLD, DATABASE_URL, TICK_LOCK]
    holder = bench.processes.start(argv, env={"FIRST": first}, name="holder")
    eventually(lambda: "holds" in bench.processes.log("holder").read_text(), 60, "the lock was not taken")
    host.cut()
    bench.processes.end(holder, limit_seconds=5)


def lock_is_free(bench):
    with bench.parts.engine.begin() as connection:
        return connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": TICK_LOCK}).scalar_one()


def test_a_host_that_dies_in_the_middle_of_a_tick_holds_the_next_one_up_for_a_moment_only(bench, hosts, eventually):
    a_host_that_dies_with_the_lock_of_the_tick(bench, hosts[1], eventually)
    assert not lock_is_free(bench)
    eventually(lambda: lock_is_free(bench), GONE_SECONDS + 30, "the dead host's connection still holds the lock")


def test_without_our_limits_the_lock_of_a_dead_host_stays(bench, hosts, eventually):
    """The twin."""
    a_host_that_dies_with_the_lock_of_the_tick(bench, hosts[1], eventually, FOR_EVER)
    end = time.monotonic() + GONE_SECONDS + 30
    while time.monotonic() < end:
        assert not lock_is_free(bench)
        time.sleep(1)
