"""Kills the broker once at every point of its work, and looks whether the next one makes good what was begun.

A life of the broker is a forked process of its engine, with a real child process as the service. The driver plays
Voxint: it asks, uses the card, gives it back, and goes on with the next life where one ends. Run it by itself:

    python tests/support/broker_lives.py FOLDER
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from voxint_broker import journal, switching
from voxint_broker.adapters import processes
from voxint_broker.adapters.child import MARK, Child
from voxint_broker.config import check
from voxint_broker.serving import make_broker

_SERVICE = """
import fcntl, os, sys, time
card = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
try:
    fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(ledger, b"clash\\n")
    sys.exit(70)
os.write(ledger, b"start\\n")
open(sys.argv[3], "w").close()
time.sleep(600)
"""


class DiedError(Exception):
    """This life of the broker is over."""


class BadError(Exception):
    """An invariant does not hold."""


@dataclass
class Life:
    """One process of the broker's engine, and calls to it over a socket pair."""

    folder: Path
    kill_at: int | tuple[str, int] = 0
    twin: str = ""
    pid: int = 0
    points: list[str] = field(default_factory=list)

    def begin(self, card=None) -> None:
        """Fork it. `card`: the driver's own hold on the card, which the broker must not inherit."""
        self.mine, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.mine.close()
            if card is not None:
                card.close()
            code = 1
            try:
                _live(self.folder, theirs, self.kill_at, self.twin)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.mine.settimeout(60)
        self.file = self.mine.makefile("rw", encoding="utf-8")

    def call(self, **what):
        try:
            self.file.write(json.dumps(what) + "\n")
            self.file.flush()
            line = self.file.readline()
        except OSError:
            line = ""
        if not line:
            raise DiedError
        return json.loads(line)

    def end(self) -> None:
        self.points = self.call(do="end")["points"]
        self.bury()

    def bury(self) -> None:
        for each in (self.file, self.mine):
            with contextlib.suppress(OSError):
                each.close()
        os.waitpid(self.pid, 0)


TWINS = {
    "forgets its service": ("turn", ("after start", 1)),
    "keeps no journal": ("turn", ("told", 1)),
    "writes over its only record": ("turn", ("journal: half written", 4)),
    "grants without looking": ("turn", 0),
    "gives back before the service is there": ("turn", 0),
}
"""Brokers with one thing broken on purpose, and the scenario and the point that must find it."""


def _break(twin: str) -> None:
    """Break this process's broker."""
    if twin == "forgets its service":
        Child.adopt, Child.sweep = (lambda _self, _handle: None), Child.look
    elif twin == "keeps no journal":
        journal.Journal.write = lambda _self, _record: None
    elif twin == "writes over its only record":
        init = journal.Journal.__init__

        def one_file(self, *arguments):
            init(self, *arguments)
            self._paths = (self._paths[0], self._paths[0])

        journal.Journal.__init__ = one_file
    elif twin == "grants without looking":
        switching.Switch.clear = switching.Switch.stop = lambda *_: None
    elif twin == "gives back before the service is there":
        switching.Switch.restore = lambda _self, **_options: None
    elif twin:
        raise ValueError(twin)


def _live(folder: Path, wire: socket.socket, kill_at: int | tuple[str, int], twin: str) -> None:
    points: list[str] = []
    _break(twin)

    def hook(name: str) -> None:
        points.append(name)
        if kill_at in {len(points), (name, points.count(name))}:
            (folder / "killed_at").write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    ready = folder / "ready"
    config = check(
        {
            "state_dir": "state",
            "memory": {"kind": "lock", "path": "card.lock", "interval_seconds": 0.002, "limit_seconds": 5},
            "lease": {"look_seconds": 0.05, "retry_seconds": 0.1},
            "service": [
                {
                    "name": "lm",
                    "kind": "child",
                    "command": [
                        sys.executable, "-S", "-E", "-c", _SERVICE,
                        str(folder / "card.lock"), str(folder / "ledger"), str(ready),
                    ],
                    "ready_url": "http://127.0.0.1:1/",
                    "stop_seconds": 3,
                }
            ],
        },
        folder,
    )  # fmt: skip
    broker = make_broker(config, hook)
    # The answer of a real server is no part of this: the service is ready when it has the card.
    part = broker._parts[0]
    object.__setattr__(part, "ready", None)
    broker.start()
    with wire.makefile("rw", encoding="utf-8") as file:
        for line in file:
            what = json.loads(line)
            if what["do"] == "end":
                broker.stop(stop_services=False)
                answer = {"points": points}
            elif what["do"] == "status":
                answer = broker.status()
            elif what["do"] == "acquire":
                reply = broker.acquire(what["holder"], timedelta(seconds=what["ttl"]), what["lease_id"])
                answer = {**reply.body, "code": reply.status}
            else:
                reply = broker.release(what["lease_id"])
                answer = {**reply.body, "code": reply.status}
            file.write(json.dumps(answer) + "\n")
            file.flush()
            if what["do"] == "acquire" and answer["code"] == 200:
                hook("told")


class Driver:
    """Voxint in one scenario, over as many lives of the broker as it takes."""

    def __init__(self, folder: Path, scenario: str, kill_at: int | tuple[str, int], *, twin: str = ""):
        self.folder = folder
        self.scenario = scenario
        self.twin = twin
        self.life = Life(folder, kill_at, twin)
        self.lives = 1
        self.lease: str | None = None
        self.card = None

    def run(self) -> list[str]:
        """The points that the last life passed."""
        self.life.begin()
        try:
            self._until("free", lambda: self._ask(do="status")["phase"] == "free")
            self._get()
            if self.scenario == "turn":
                self._use()
                self._give_back()
            elif self.scenario == "expiry":
                self._until("the lease is over", lambda: self._ask(do="status")["phase"] in {"expired", "free"})
            elif self.scenario == "changed mind":
                self._give_back()
            self._until("free again", self._is_free)
            self._check_the_end()
            self.life.end()
            return self.life.points
        finally:
            self._clean_up()

    def _ask(self, **what):
        while True:
            try:
                answer = self.life.call(**what)
            except DiedError:
                self.life.bury()
                self.lives += 1
                if self.lives > 2 or self.life.kill_at == 0:
                    raise BadError("the broker died by itself") from None
                self.life = Life(self.folder, twin=self.twin)
                self.life.begin(self.card)
                continue
            self._check_now()
            return answer

    def _until(self, what, true):
        limit = time.monotonic() + (3 if self.twin else 60)
        while not true():
            if time.monotonic() > limit:
                raise BadError(f"never {what}: {self._ask(do='status')}")
            time.sleep(0.003)

    def _get(self):
        ttl = 0.3 if self.scenario == "expiry" else 600

        def asked():
            answer = self._ask(do="acquire", holder="voxint", ttl=ttl, lease_id=None)
            if answer["code"] == 200:
                self.lease = answer["lease_id"]
            elif answer["code"] != 202:
                raise BadError(f"an acquire was answered {answer}")
            return self.lease is not None or self.scenario == "changed mind"

        self._until("granted", asked)
        if self.scenario == "changed mind":
            self.lease = self._ask(do="status")["lease_id"] or "none"

    def _use(self):
        """Use the card, as the model services do: a start of the other service now is a clash in the ledger."""
        self.card = (self.folder / "card.lock").open("ab")
        try:
            fcntl.flock(self.card, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadError("a lease was granted while the service still had the card") from None
        answer = self._ask(do="acquire", holder="voxint", ttl=600, lease_id=self.lease)
        if answer["code"] != 200 or answer["lease_id"] != self.lease:
            raise BadError(f"a renewal was answered {answer}")
        other = self._ask(do="acquire", holder="other", ttl=600, lease_id=None)
        if other["code"] != 409:
            raise BadError(f"two holders: another one was answered {other}")
        again = self._ask(do="acquire", holder="voxint", ttl=600, lease_id=None)
        if again.get("lease_id") != self.lease:
            raise BadError(f"the same request again was answered {again}")
        self.card.close()
        self.card = None

    def _give_back(self):
        def released():
            code = self._ask(do="release", lease_id=self.lease)["code"]
            if code not in {200, 202, 404}:
                raise BadError(f"a release was answered {code}")
            if code in {200, 404} and not self._is_there():
                raise BadError(f"a release was answered {code} while the service is down")
            return code != 202

        self._until("released", released)

    def _is_there(self):
        """Whether the service runs; in the middle of its exec, a process shows neither arguments nor environment."""
        limit = time.monotonic() + 1
        while not self._pids():
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        return True

    def _is_free(self):
        return self._ask(do="status")["phase"] == "free" and len(self._pids()) == 1

    def _check_now(self):
        ledger = self.folder / "ledger"
        if ledger.exists() and "clash" in ledger.read_text():
            raise BadError("the service was started while the card was taken")
        if len(self._pids()) > 1:
            raise BadError("two copies of the service run")

    def _check_the_end(self):
        # The last start must have got as far as the card.
        self._until("has the card", (self.folder / "ready").exists)
        status = self._ask(do="status")
        if status["state"] != "free" or status["lease_id"] is not None:
            raise BadError(f"a lease is left: {status}")

    def _pids(self):
        wanted = str(self.folder / "ledger")
        return [pid for pid in processes.marked_like(MARK) if wanted in processes.command_line(pid)]

    def _clean_up(self):
        if self.card is not None:
            self.card.close()
        if self.life.pid:
            try:
                os.kill(self.life.pid, signal.SIGKILL)
                os.waitpid(self.life.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        for pid in self._pids():
            os.kill(pid, signal.SIGKILL)


SCENARIOS = ("turn", "expiry", "changed mind")


def campaign(folder: Path, scenarios=SCENARIOS, step: int = 1) -> tuple[int, list[str]]:
    """Kill at every `step`-th point of every scenario: how many points there were, and what was bad."""
    bad: list[str] = []
    count = 0
    for scenario in scenarios:
        place = _place(folder)
        points = Driver(place, scenario, 0).run()
        for number in range(1, len(points) + 1, step):
            place = _place(folder)
            count += 1
            try:
                Driver(place, scenario, number).run()
            except Exception as error:
                bad.append(f"{scenario}, point {number} ({points[number - 1]}): {type(error).__name__} {error}")
    return count, bad


def _place(folder: Path) -> Path:
    place = folder / "life"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


if __name__ == "__main__":
    total, problems = campaign(Path(sys.argv[1]).absolute(), step=int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("\n".join(problems))
    print(f"crash: {total} points, {len(problems)} bad")
    sys.exit(bool(problems))
