"""Fifty clients at once over HTTP, each another holder: one is granted, the others get 409, always."""

from __future__ import annotations

import threading

import pytest
from broker_process import BrokerProcess

CLIENTS = 50
ROUNDS = 3


@pytest.mark.timeout(300)
def test_of_fifty_at_once_one_is_granted_and_the_others_are_refused(tmp_path):
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        broker.until_phase("free")
        for _ in range(ROUNDS):
            one_round(broker)
    finally:
        broker.close()


def one_round(broker):
    together = threading.Barrier(CLIENTS)
    first: dict[str, tuple] = {}
    again: dict[str, tuple] = {}

    def client(name):
        together.wait(60)
        first[name] = broker.acquire(holder=name)
        together.wait(60)
        if first[name][0] == 409:
            again[name] = broker.acquire(holder=name)

    threads = [threading.Thread(target=client, args=(f"holder-{number}",)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first) == CLIENTS
    winners = [name for name, (code, _) in first.items() if code != 409]
    assert len(winners) == 1, first
    (winner,) = winners
    assert first[winner][0] == 202
    refused = [answer for name, answer in first.items() if name != winner] + list(again.values())
    assert len(refused) == 2 * (CLIENTS - 1)
    assert {(code, body["holder"]) for code, body in refused} == {(409, winner)}
    lease = broker.granted(holder=winner)
    assert broker.acquire(holder="late")[0] == 409
    assert broker.status()["holder"] == winner
    broker.until(lambda: broker.release(lease), 200)
