"""What the broker itself costs over the service's own stop and start: `python benchmarks/broker_switch.py [SWITCHES]`.

A service that stops and starts at once is switched by hand (signal, wait, start, first answer), and by the broker, in
turns. The broker's cost is what its switch takes longer than the median by hand. It includes the journal's syncs, the
two readings, and the looks between them; it is read from the broker's own engine, not over HTTP.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from voxint_broker.config import check
from voxint_broker.serving import make_broker

if TYPE_CHECKING:
    from voxint_broker.engine import Broker

SERVICE = """
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    connection.close()
"""


def argv(port: int) -> list[str]:
    """The service's command."""
    return [sys.executable, "-S", "-E", "-c", SERVICE, str(port)]


def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def until_ready(url: str) -> None:
    """Ask until it answers."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.0005)


def by_hand(
    process: subprocess.Popen[bytes], command: list[str], url: str
) -> tuple[subprocess.Popen[bytes], float, float]:
    """Stop and start without a broker: the new process, and the two times in seconds."""
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.wait()
    stopped = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    until_ready(url)
    return process, stopped - begun, time.perf_counter() - stopped


def until(broker: Broker, phase: str) -> None:
    """Look until the phase is reached."""
    while broker.status()["phase"] != phase:
        time.sleep(0.0005)


def by_broker(broker: Broker) -> tuple[float, float]:
    """The times of an acquire and a release, in seconds."""
    begun = time.perf_counter()
    broker.acquire("bench", timedelta(seconds=600), None)
    until(broker, "held")
    stopped = time.perf_counter()
    lease = broker.acquire("bench", timedelta(seconds=600), None).body["lease_id"]
    again = time.perf_counter()
    broker.release(lease)
    until(broker, "free")
    return stopped - begun, time.perf_counter() - again


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(round(share * (len(ordered) - 1)), len(ordered) - 1)]


def main() -> None:
    """Measure, and print."""
    switches = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    direct_port, broker_port = port(), port()
    direct_url, broker_url = (f"http://127.0.0.1:{each}/" for each in (direct_port, broker_port))
    with tempfile.TemporaryDirectory() as folder:
        config = check(
            {
                "state_dir": "state",
                "memory": {"kind": "lock", "path": "card.lock"},
                "service": [{"name": "lm", "kind": "child", "command": argv(broker_port), "ready_url": broker_url}],
            },
            Path(folder),
        )
        broker = make_broker(config)
        broker.start()
        process = subprocess.Popen(argv(direct_port), start_new_session=True)
        try:
            until(broker, "free")
            until_ready(direct_url)
            hand, ours = [], []
            for _ in range(switches):
                process, stop, start = by_hand(process, argv(direct_port), direct_url)
                hand.append((stop, start))
                ours.append(by_broker(broker))
        finally:
            process.kill()
            process.wait()
            broker.stop(stop_services=True)
    load = os.getloadavg()[0]
    print(f"{switches} switches, {os.cpu_count()} processors, load {load:.1f}; milliseconds")
    for name, place in (("stop", 0), ("start", 1)):
        base = statistics.median(each[place] for each in hand)
        times = [each[place] for each in ours]
        figures = (base, statistics.median(times), percentile(times, 0.95))
        print(
            f"{name:<6} by hand p50 {figures[0] * 1000:6.1f}   broker p50 {figures[1] * 1000:6.1f}   p95 {figures[2] * 1000:6.1f}"
        )
    base = statistics.median(sum(each) for each in hand)
    base95 = percentile([sum(each) for each in hand], 0.95)
    own = [sum(each) - base for each in ours]
    print(
        f"the broker's own cost: p50 {statistics.median(own) * 1000:.1f}, p95 {percentile(own, 0.95) * 1000:.1f} "
        f"(by hand, p95 is {(base95 - base) * 1000:.1f} above p50 on this machine at this moment)"
    )


if __name__ == "__main__":
    main()
