"""A campaign: recordings go through the whole product while its parts are killed, stalled, cut off and lied to.

`python tests/chaos/campaign.py --seed 7 --recordings 200` runs one and ends with its line; the same seed makes the same
plan. What is looked for afterwards: every recording done once, nothing on the card at the same time as the other side,
no stage begun outside its lane, no request lost, the end state an open lane, and how long no lane was open.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import wave
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import psutil
import redis
from sqlalchemy import text
from stack import ANSWER_SECONDS, HEARTBEAT_LIMIT, SERVICES, START_SECONDS, STOP_SECONDS, Stack

from voxint.gpu_phase import lanes
from voxint.gpu_phase.model import Lane, Phase, RequestKind
from voxint.recordings.media import decoder
from voxint.recordings.media.facts import MediaFacts

KILLED = (
    "worker-1",
    "worker-2",
    "worker-child",
    "gpu-phase",
    "gpu-phase-child",
    "beat",
    "broker",
    "valkey",
    "postgres",
    *SERVICES,
    "language_model",
)
TROUBLE = (
    "flushall",
    "cut-database",
    "cut-redis",
    "stall-broker",
    "stall-worker",
    "clock-forward",
    "clock-back",
    "term-worker",
)
REQUESTS = ("audio-now", "release")
LONGEST_CLOSED = round(2 * (START_SECONDS + STOP_SECONDS) + max(ANSWER_SECONDS.values()) + HEARTBEAT_LIMIT + 90, 1)
"""Seconds for which no lane may be open: the services' own times, the heartbeat limit, and 90 s."""

ERROR_IS_LOOKED_AFTER = timedelta(seconds=45)
"""After this time in `error` the operator asks for the release: three failures in a row make the wait two minutes."""

LOOKS = """
    CREATE TABLE chaos_look (id bigint GENERATED ALWAYS AS IDENTITY, what text, ref bigint, phase text);
    CREATE FUNCTION chaos_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos_look (what, ref, phase) VALUES ('phase', NEW.id, NEW.to_phase); RETURN NEW; END $$;
    CREATE FUNCTION chaos_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos_look (what, ref, phase)
        VALUES (NEW.kind, NEW.id, (SELECT phase FROM gpu_phase)); RETURN NEW; END $$;
    CREATE TRIGGER chaos_event AFTER INSERT ON gpu_phase_event FOR EACH ROW EXECUTE FUNCTION chaos_event();
    CREATE TRIGGER chaos_claim AFTER INSERT ON stage_execution FOR EACH ROW EXECUTE FUNCTION chaos_claim();
"""
OUTSIDE = """
    SELECT count(*) FROM chaos_look WHERE
        (what IN ('acquire', 'prepare', 'transcribe', 'diarize_embed') AND phase NOT IN ('audio', 'draining'))
        OR (what IN ('enhance_match', 'finalize') AND phase NOT IN ('llm', 'draining_post'))
"""
TWICE = """
    SELECT count(*) FROM (
        SELECT run_id, kind FROM stage_execution WHERE outcome = 'done' GROUP BY run_id, kind HAVING count(*) > 1
    ) doubled
"""


@dataclass
class Result:
    """What a campaign found."""

    seed: int
    recordings: int
    limit: float = 240
    seconds: float = 0
    load: float = 0
    done: int = 0
    failed: list = field(default_factory=list)
    lost: int = 0
    twice: int = 0
    overlaps: int = 0
    outside: int = 0
    requests: int = 0
    requests_lost: int = 0
    open_at_the_end: bool = False
    longest_closed: float = 0
    switches: int = 0
    kills: dict = field(default_factory=dict)
    trouble: dict = field(default_factory=dict)

    @property
    def findings(self) -> list[str]:
        """What is wrong, in words; nothing where all is well."""
        wrong = {
            f"{self.lost} recordings are not done: {self.failed or 'time is up'}": self.lost,
            f"{self.twice} stages were done twice": self.twice,
            f"{self.overlaps} times both sides were on the card": self.overlaps,
            f"{self.outside} stages began outside their lane": self.outside,
            f"{self.requests_lost} requests were never answered": self.requests_lost,
            "no lane was open at the end": not self.open_at_the_end,
            f"for {self.longest_closed} s no lane was open, more than {LONGEST_CLOSED} s": (
                self.longest_closed > LONGEST_CLOSED
            ),
            f"never killed: {', '.join(kind for kind, times in self.kills.items() if not times)}": (
                not all(self.kills.values())
            ),
        }
        return [words for words, found in wrong.items() if found]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def line(self) -> str:
        """The last line."""
        kills = sum(self.kills.values())
        overlaps = self.overlaps + self.outside
        return (
            f"chaos: seed {self.seed}, {kills} kills, {self.done} done, {self.lost} lost, {self.twice} twice, "
            f"{overlaps} overlaps"
        )


class Sampler(threading.Thread):
    """Looks at the card and at the lanes all the time."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self.stopping = threading.Event()
        self.overlaps = 0
        self.longest_closed = 0.0
        self._overlapping = False
        self._closed_since: float | None = None

    def run(self) -> None:
        """Every 30 ms at the card, every 300 ms at the lanes."""
        looks = 0
        while not self.stopping.wait(0.03):
            sides = {side for _, side, _ in self._stack.on_the_card()}
            both = len(sides) == 2
            self.overlaps += both and not self._overlapping
            self._overlapping = both
            looks += 1
            if looks % 10 == 0:
                self._look_at_lanes()

    def _look_at_lanes(self) -> None:
        now = time.monotonic()
        opened = False
        with contextlib.suppress(Exception):  # the database may be down: then no lane is open
            loaded = self._stack.parts.phase_store.load()
            state = loaded.stored.state if loaded.stored else None
            opened = any(lanes.is_open(lane, state, loaded.now, self._stack.settings.policy) for lane in Lane)
        if opened or self._closed_since is None:
            self._closed_since = now
        self.longest_closed = max(self.longest_closed, now - self._closed_since)


class Campaign:
    """One campaign on a stack."""

    def __init__(
        self, stack: Stack, seed: int, recordings: int, limit: float, only: tuple[str, ...] = (*KILLED, *TROUBLE)
    ) -> None:
        self.stack = stack
        self.only = only
        self.result = Result(seed, recordings, limit)
        self.random = random.Random(seed)
        self.kills: Counter = Counter(dict.fromkeys(KILLED, 0))
        self.trouble: Counter = Counter(dict.fromkeys(TROUBLE, 0))
        self.limit = limit
        self._background: list[threading.Thread] = []

    def run(self) -> Result:
        """Start, add, trouble, wait, look."""
        self.stack.start()
        with self.stack.parts.engine.begin() as connection:
            connection.execute(text(LOOKS))
        began = time.monotonic()
        self._add()
        sampler = Sampler(self.stack)
        sampler.start()
        self._make_trouble(began)
        for thread in self._background:
            thread.join()
        self._clock(0)
        self._wait(began + self.limit)
        sampler.stopping.set()
        sampler.join()
        self.result.overlaps = sampler.overlaps
        self.result.longest_closed = round(sampler.longest_closed, 1)
        self._look()
        self.result.seconds = round(time.monotonic() - began, 1)
        self.result.load = round(os.getloadavg()[1] / (os.cpu_count() or 1), 1)
        return self.result

    def _add(self) -> None:
        # The decoder's own code, without a process for each look: what the campaign is about comes afterwards.
        self.stack.parts.run_store._look_into = _look_here
        for n in range(self.result.recordings):
            path = self.stack.home / "in" / f"recording-{n}.wav"
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16000)
                samples = self.random.randbytes(3200)
                file.writeframes(samples)
            self.stack.parts.run_store.add(str(path), title=f"recording {n}")
        self.stack.parts.publisher.wake_phase()

    # --- trouble ------------------------------------------------------------------------------------------------

    def _make_trouble(self, began: float) -> None:
        """Kinds in a shuffled order, again and again, until each was killed and most of the work is done."""
        wanted: list[str] = []
        last_request = time.monotonic()
        while time.monotonic() - began < self.limit * 0.45:
            if not wanted:
                wanted = list(self.only)
                self.random.shuffle(wanted)
            time.sleep(self.random.uniform(0.4, 2.0))
            chosen = next((kind for kind in wanted if self._do(kind)), None)
            if chosen is not None:
                wanted.remove(chosen)
            self._look_after_error()
            if time.monotonic() - last_request > 9:
                last_request = time.monotonic()
                self._request()
            if self._share_done() > 0.8 and all((self.kills | self.trouble)[kind] for kind in self.only):
                return

    def _do(self, kind: str) -> bool:
        done = self._kill(kind) if kind in KILLED else self._disturb(kind)
        if done:
            (self.kills if kind in KILLED else self.trouble)[kind] += 1
        return done

    def _kill(self, kind: str) -> bool:
        pause = self.random.uniform(0, 1.5)
        if kind.endswith("-child"):
            parent = "gpu-phase" if kind.startswith("gpu-phase") else self.random.choice(["worker-1", "worker-2"])
            pid = self.stack.pool_child(parent)
            if pid is None:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return True
        return self.stack.kill(kind, pause)

    def _disturb(self, kind: str) -> bool:
        ways = {
            "flushall": lambda: bool(self._redis().flushall()),
            "cut-redis": lambda: (
                self._redis().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 0
            ),
            "cut-database": self._cut_database,
            "stall-broker": lambda: self._stall(self.stack.running("broker"), self.random.uniform(3, 12)),
            "stall-worker": lambda: self._stall(self._a_child(), HEARTBEAT_LIMIT + self.random.uniform(6, 10)),
            "clock-forward": lambda: self._clock(self.random.uniform(5, 25)),
            "clock-back": lambda: self._clock(-self.random.uniform(5, 25)),
            "term-worker": self._term_worker,
        }
        try:
            return ways[kind]()
        except Exception as error:
            print(f"  could not {kind}: {type(error).__name__}", file=sys.stderr)
            return False

    def _a_child(self) -> list[int]:
        """A process of a worker's pool that is not stalled yet."""
        kind = self.random.choice(["worker-1", "worker-2"])
        found = []
        for pid in self.stack.running(kind):
            with contextlib.suppress(psutil.Error):
                found = [c.pid for c in psutil.Process(pid).children() if c.status() != psutil.STATUS_STOPPED]
        return [self.random.choice(found)] if found else []

    def _term_worker(self) -> bool:
        pids = self.stack.running(self.random.choice(["worker-1", "worker-2"]))
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        return bool(pids)

    def _cut_database(self) -> bool:
        with self.stack.parts.engine.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        return True

    def _stall(self, pids: list[int], seconds: float) -> bool:
        def stall() -> None:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pids[0])
                process.suspend()
                time.sleep(seconds)
                process.resume()

        if not pids:
            return False
        thread = threading.Thread(target=stall)
        thread.start()
        self._background.append(thread)
        return True

    def _clock(self, seconds: float) -> bool:
        with self.stack.parts.engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                    f" AS $$ SELECT clock_timestamp() + interval '{seconds:.3f} seconds' $$"
                )
            )
        return True

    def _request(self) -> None:
        with contextlib.suppress(Exception):
            kind = RequestKind(self.random.choice(REQUESTS))
            self.stack.parts.phase_store.record_request(kind, "chaos")
            self.result.requests += 1

    def _look_after_error(self) -> None:
        """What the alert tells an operator to do: where the hand-back has failed and waits for long, ask for it."""
        with contextlib.suppress(Exception):  # the database may be down at this moment
            loaded = self.stack.parts.phase_store.load()
            state = loaded.stored.state if loaded.stored else None
            waits = state is not None and state.phase is Phase.ERROR and state.age(loaded.now) > ERROR_IS_LOOKED_AFTER
            if waits and (loaded.request is None or loaded.request.kind is not RequestKind.RELEASE):
                self.stack.parts.phase_store.record_request(RequestKind.RELEASE, "chaos, as the alert says")
                self.result.requests += 1

    def _go_on_now(self) -> None:
        """What a person does once the trouble is over: not sit out the backoff that it has left behind."""
        with contextlib.suppress(Exception):  # the database may just be starting again
            loaded = self.stack.parts.phase_store.load()
            state = loaded.stored.state if loaded.stored else None
            waits = state is not None and state.phase is Phase.LLM and state.retry_after is not None
            if waits and loaded.request is None and state.retry_after > loaded.now:
                self.stack.parts.phase_store.record_request(RequestKind.AUDIO_NOW, "chaos, when the trouble is over")
                self.result.requests += 1

    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.stack.valkey.url, socket_timeout=2)

    # --- looking ------------------------------------------------------------------------------------------------

    def _scalar(self, query: str) -> int:
        with self.stack.parts.engine.begin() as connection:
            return connection.execute(text(query)).scalar_one()

    def _share_done(self) -> float:
        try:
            return self._scalar("SELECT count(*) FROM run WHERE status = 'done'") / self.result.recordings
        except Exception:  # the database may be down at this moment
            return 0

    def _settled(self) -> bool:
        store = self.stack.parts.phase_store
        loaded = store.load()
        state = loaded.stored.state if loaded.stored else None
        opened = any(lanes.is_open(lane, state, loaded.now, self.stack.settings.policy) for lane in Lane)
        unfinished = self._scalar("SELECT count(*) FROM run WHERE status IN ('queued', 'running')")
        return opened and unfinished == 0 and loaded.request is None

    def _wait(self, until: float) -> None:
        while time.monotonic() < until:
            self._look_after_error()
            self._go_on_now()
            with contextlib.suppress(Exception):
                if self._settled():
                    self.result.open_at_the_end = True
                    return
            time.sleep(0.3)

    def _look(self) -> None:
        result = self.result
        result.done = self._scalar("SELECT count(*) FROM run WHERE status = 'done'")
        with self.stack.parts.engine.begin() as connection:
            rows = connection.execute(text("SELECT id, stage, error FROM run WHERE status = 'failed'")).all()
        result.failed = [f"{row.id} {row.stage}: {row.error}" for row in rows]
        result.lost = result.recordings - result.done
        result.twice = self._scalar(TWICE)
        result.outside = self._scalar(OUTSIDE)
        result.requests_lost = self._scalar("SELECT count(*) FROM gpu_phase_request WHERE consumed_at IS NULL")
        result.switches = self._scalar("SELECT count(*) FROM gpu_phase_event WHERE to_phase = 'audio'")
        result.kills = {kind: times for kind, times in self.kills.items() if kind in self.only}
        result.trouble = dict(self.trouble)


def _look_here(path: Path) -> MediaFacts:
    with path.open("rb") as file:
        return MediaFacts.from_document(decoder.look(file))


def run_campaign(
    seed: int,
    recordings: int,
    *,
    limit: float = 240,
    broken: str | None = None,
    only: tuple[str, ...] = (*KILLED, *TROUBLE),
    keep: Path | None = None,
) -> Result:
    """One campaign in a folder of its own, which is kept where something was found."""
    home = Path(tempfile.mkdtemp(prefix="vx-chaos-"))
    stack = Stack(home, broken=broken)
    try:
        result = Campaign(stack, seed, recordings, limit, only).run()
    finally:
        stack.end()
    if keep is not None and not result.clean:
        shutil.copytree(stack.logs, keep / f"chaos-{seed}", dirs_exist_ok=True)
        print(f"  logs: {keep / f'chaos-{seed}'}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    return result


def report(result: Result) -> dict:
    """A campaign as values that can be written down."""
    return asdict(result) | {
        "clean": result.clean,
        "findings": result.findings,
        "longest_closed_limit": LONGEST_CLOSED,
        "line": result.line,
    }


def main() -> int:
    """One campaign from the command line; 0 when it found nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--recordings", type=int, default=200)
    parser.add_argument("--limit", type=float, default=240, help="seconds")
    parser.add_argument("--break", dest="broken", choices=["gate", "token"], help="take a safeguard out")
    parser.add_argument("--out", type=Path, default=Path("build"), help="the folder for what was found")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = run_campaign(
        arguments.seed, arguments.recordings, limit=arguments.limit, broken=arguments.broken, keep=arguments.out
    )
    text_of = json.dumps(report(result), indent=1)
    (arguments.out / f"chaos-{arguments.seed}.json").write_text(text_of + "\n", encoding="utf-8")
    print(text_of)
    for words in result.findings:
        print(f"found: {words}")
    print(result.line)
    return 0 if result.clean else 1


if __name__ == "__main__":
    sys.exit(main())
