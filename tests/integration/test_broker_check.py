"""`check` passes a broker that keeps the contract, and finds each of twelve faults by the right row."""

from __future__ import annotations

import json
import time

import pytest
from small_broker import FAULTS, SmallBroker

from voxint_broker.asking import ask
from voxint_broker.checking import Checker, Target, Verdict

ROWS = {
    "grants at once": "service while held",
    "never grants": "granted",
    "grants twice": "another holder",
    "renews with another id": "renewal",
    "renews anything": "renewal of an unknown id",
    "refuses with 503": "another holder",
    "forgets to release": "status after the release",
    "releases anything": "still held after that",
    "answers 200 to an unknown release": "release of an unknown id",
    "status without an id": "status while held",
    "naive pages": "status at rest",
    "release before the service is back": "service after the release",
}


def check(broker, **options):
    target = Target(
        f"{broker.url}/gpu/acquire",
        f"{broker.url}/gpu/release",
        f"{broker.url}/gpu/status",
        service_url=f"{broker.url}/service",
        limit_seconds=1.0,
        short_ttl=0.4,
        **options,
    )
    return Checker(target, lambda _row: None).run()


@pytest.fixture
def make():
    made = []

    def start(*arguments, **options):
        broker = SmallBroker(*arguments, **options)
        made.append(broker)
        return broker

    yield start
    for broker in made:
        broker.close()


def test_a_good_broker_passes(make):
    rows = check(make())
    assert {row.verdict for row in rows} == {Verdict.OK, Verdict.SKIPPED}
    assert [row.name for row in rows if row.verdict is Verdict.SKIPPED] == ["a request that is left alone"]


def test_a_token_is_asked_for(make):
    rows = {row.name: row for row in check(make(token="sesame"), token="sesame")}
    assert rows["token"].verdict is Verdict.OK
    assert rows["released"].verdict is Verdict.OK


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_by_its_row(make, fault):
    rows = check(make(fault))
    failed = [row.name for row in rows if row.verdict is Verdict.FAILED]
    assert ROWS[fault] in failed, rows
    assert failed[0] == ROWS[fault], rows


def test_nothing_is_left_behind(make):
    broker = make("renews with another id")
    check(broker)
    assert broker.phase in {"free", "starting"}


def test_a_lease_that_voxint_has_is_left_alone(make):
    broker = make()
    address = f"{broker.url}/gpu/acquire"
    wish = json.dumps({"holder": "voxint", "ttl_seconds": 600, "lease_id": None})
    answer = ask(address, 10, method="POST", body=wish)
    deadline = time.monotonic() + 60
    while answer.status == 202 and time.monotonic() < deadline:
        answer = ask(address, 10, method="POST", body=wish)
    lease = answer.json()["lease_id"]

    rows = check(broker)

    assert rows[1].got == "somebody holds the GPU: run the check when it is free"
    assert ask(f"{broker.url}/gpu/status", 10).json()["lease_id"] == lease
