"""What the broker itself costs over the service's own stop and start: `python benchmarks/broker_switch.py [SWITCHES]`.

The service writes down when it ends and when it listens; the broker's own hook tells when the signal is about to be
sent and the process about to be started. What is left of a switch is the broker's own: the call, the journal's syncs,
the readings and the sweep between them, noticing the end, noticing the first answer. A switch by hand (signal, wait,
start, first answer) stands beside it. Then the broker idles as a process, and its processor time is read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from figures import RATIO, Row, median, percentile, row

from voxint_broker.config import check
from voxint_broker.serving import make_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxint_broker.engine import Broker

IDLE_SECONDS = 20.0
CLIENTS = 100
ASKS = 5
MOST_MILLISECONDS = 25.0
MOST_IDLE_PERCENT = 1.0

SERVICE = """
import os, signal, socket, sys, time
told = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def end(*_):
    os.write(told, f"end {time.monotonic()}\\n".encode())
    os._exit(0)
signal.signal(signal.SIGTERM, end)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
os.write(told, f"listen {time.monotonic()}\\n".encode())
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    connection.close()
"""


def argv(port: int, told: Path) -> list[str]:
    """The service's command."""
    return [sys.executable, "-S", "-E", "-c", SERVICE, str(port), str(told)]


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


def by_hand(process: subprocess.Popen[bytes], command: list[str], url: str) -> tuple[subprocess.Popen[bytes], float]:
    """Stop and start without a broker: the new process, and the time in seconds."""
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait()
    process = subprocess.Popen(command, start_new_session=True)
    until_ready(url)
    return process, time.monotonic() - begun


def until(broker: Broker, phase: str) -> float:
    """Look until the phase is reached; the moment."""
    while broker._record.state.value != phase:  # noqa: SLF001 - a status looks at the services, and would be measured
        time.sleep(0.0005)
    return time.monotonic()


class Measured:
    """A broker, and what one switch of it took: in all, and its own part, in seconds."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "told"
        self._points: dict[str, float] = {}
        at = port()
        url = f"http://127.0.0.1:{at}/"
        command = argv(at, self._told)
        values = {
            "state_dir": "state",
            "memory": {"kind": "lock", "path": "card.lock"},
            "service": [{"name": "lm", "kind": "child", "command": command, "ready_url": url}],
        }
        self.broker = make_broker(check(values, folder), self._note)

    def _note(self, point: str) -> None:
        self._points[point] = time.monotonic()

    def _last(self, word: str) -> float:
        lines = [line.split() for line in self._told.read_text().splitlines()]
        return max(float(moment) for name, moment in lines if name == word)

    def switch(self) -> tuple[float, float, float]:
        """An acquire and a release: seconds in all, and the broker's own of each."""
        begun = time.monotonic()
        self.broker.acquire("bench", timedelta(seconds=600), None)
        held = until(self.broker, "held")
        stopping = (self._points["before stop"] - begun) + (held - self._last("end"))
        lease = self.broker.acquire("bench", timedelta(seconds=600), None).body["lease_id"]
        again = time.monotonic()
        self.broker.release(lease)
        free = until(self.broker, "free")
        starting = (self._points["before start"] - again) + (free - self._last("listen"))
        return (held - begun) + (free - again), stopping, starting


def line(name: str, seconds: list[float]) -> str:
    """A row of the table, in milliseconds."""
    return f"{name:<34} p50 {statistics.median(seconds) * 1000:7.1f}   p95 {percentile(seconds, 0.95) * 1000:7.1f}"


def idle_share(folder: Path) -> float:
    """The share of one processor that an idle broker with one service uses."""
    at, door = port(), port()
    (folder / "broker.toml").write_text(_idle_config(folder, door, at))
    with _broker_process(folder, door) as process:
        time.sleep(2)
        before = _ticks(process.pid)
        time.sleep(IDLE_SECONDS)
        return (_ticks(process.pid) - before) / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS


def _idle_config(folder: Path, door: int, at: int) -> str:
    command = ", ".join(f"'''{word}'''" for word in argv(at, folder / "idle"))
    return (
        f'listen = ["127.0.0.1:{door}"]\nstate_dir = "idle-state"\nstop_services_on_exit = true\n'
        f'[memory]\nkind = "lock"\npath = "card.lock"\n'
        f'[[service]]\nname = "lm"\nkind = "child"\ncommand = [{command}]\nready_url = "http://127.0.0.1:{at}/"\n'
    )


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def switched(switches: int, folder: Path) -> tuple[list[float], list[tuple[float, float, float]]]:
    """So many by hand and by the broker, in turns, in seconds."""
    measured = Measured(folder)
    measured.broker.start()
    at = port()
    command, url = argv(at, folder / "by-hand"), f"http://127.0.0.1:{at}/"
    process = subprocess.Popen(command, start_new_session=True)
    hand, ours = [], []
    try:
        until(measured.broker, "free")
        until_ready(url)
        for _ in range(switches):
            process, seconds = by_hand(process, command, url)
            hand.append(seconds)
            ours.append(measured.switch())
    finally:
        process.kill()
        process.wait()
        measured.broker.stop(stop_services=True)
    return hand, ours


def hundred_clients(folder: Path) -> list[float]:
    """A hundred clients that ask for the status at the same moment, each with a connection of its own, in seconds."""
    at, door = port(), port()
    (folder / "broker.toml").write_text(_idle_config(folder, door, at))
    took: list[float] = []
    with _broker_process(folder, door):
        together = threading.Barrier(CLIENTS)

        def client() -> None:
            together.wait(60)
            for _ in range(ASKS):
                begun = time.monotonic()
                with urllib.request.urlopen(f"http://127.0.0.1:{door}/gpu/status", timeout=30) as answer:
                    answer.read()
                took.append(time.monotonic() - begun)

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(took) != CLIENTS * ASKS:
        raise SystemExit(f"{CLIENTS * ASKS - len(took)} of {CLIENTS * ASKS} questions for the status had no answer")
    return took


@contextlib.contextmanager
def _broker_process(folder: Path, door: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "voxint_broker", "serve", "--config", str(folder / "broker.toml")],
        stderr=subprocess.DEVNULL,
    )
    try:
        until_ready(f"http://127.0.0.1:{door}/readyz")
        yield process
    finally:
        process.terminate()
        process.wait(20)


def measure(*, quick: bool = False) -> list[Row]:
    """The broker's own part of a switch; and, if there is time, its idle processor time and a hundred clients."""
    switches = 10 if quick else 50
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        hand, ours = switched(switches, folder)
        own = [each[1] + each[2] for each in ours]
        rows = [
            row("broker: stop and start by hand, p95", percentile(hand, 0.95) * 1000, "ms", switches),
            row(
                "broker: its own part of an acquire, p95", percentile([e[1] for e in ours], 0.95) * 1000, "ms", switches
            ),
            row(
                "broker: its own part of a release, p95", percentile([e[2] for e in ours], 0.95) * 1000, "ms", switches
            ),
            row("broker: its own part of both, median", median(own) * 1000, "ms", switches),
            row("broker: its own part of both, p95", percentile(own, 0.95) * 1000, "ms", switches, MOST_MILLISECONDS),
            row(
                "broker: its own part over stop and start by hand, best of each", min(own) / min(hand), RATIO, switches
            ),
        ]
        if not quick:
            took = hundred_clients(folder)
            name = f"broker: the status, {CLIENTS} clients at once"
            rows.append(row(f"{name}, median", median(took) * 1000, "ms", len(took)))
            rows.append(row(f"{name}, p99", percentile(took, 0.99) * 1000, "ms", len(took)))
            rows.append(row("broker: idle, of one processor", idle_share(folder) * 100, "%", 1, MOST_IDLE_PERCENT))
    return rows


def main() -> None:
    """Measure, and print."""
    switches = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hand, ours = switched(switches, folder)
        load = os.getloadavg()[0]
        print(f"{switches} switches, {os.cpu_count()} processors, load {load:.1f}; milliseconds")
        print(line("stop and start by hand", hand))
        print(line("acquire and release, in all", [each[0] for each in ours]))
        print(line("the broker's own part: acquire", [each[1] for each in ours]))
        print(line("the broker's own part: release", [each[2] for each in ours]))
        print(line("the broker's own part: both", [each[1] + each[2] for each in ours]))
        print(f"idle: {idle_share(folder) * 100:.2f} % of one processor over {IDLE_SECONDS:g} s")


if __name__ == "__main__":
    main()
