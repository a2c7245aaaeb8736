"""The whole product as processes, on stand-ins for the models: started, watched, started again when killed.

PostgreSQL, Valkey, beat, the gpu-phase worker, two regular workers, the broker (which owns the language model) and the
three model services (which the gpu-phase worker starts). The stand-ins keep a ledger of who is on the card, and take no
lock: nothing but the turn-taking keeps the two sides apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from ports import free_ports

from voxint.db.engine import make_engine
from voxint.db.migrate import upgrade
from voxint.settings import load_settings
from voxint.standalone.postgres import EmbeddedPostgres
from voxint.standalone.valkey import EmbeddedValkey
from voxint.wiring import Parts

HERE = Path(__file__).parent
SERVICES = ("whisper", "pyannote", "titanet")
ANSWER_SECONDS = {"whisper": 0.2, "pyannote": 0.1, "titanet": 0.05, "language_model": 0.05}
START_SECONDS = 0.4
STOP_SECONDS = 0.2
HEARTBEAT_LIMIT = 6.0
WORKERS = 3
"""The pool of each regular worker."""
SHORTENED = {
    "GPU_PHASE_TICK_SECONDS": "5",
    "GPU_PHASE_MIN_DWELL_SECONDS": "3",
    "GPU_PHASE_MAX_AUDIO_SECONDS": "25",
    "WORK_HEARTBEAT_SECONDS": "1",
    "WORK_HEARTBEAT_LIMIT_SECONDS": f"{HEARTBEAT_LIMIT:g}",
    # Far more often than on any host, the same stage meets a kill: the campaign is about loss, not about giving up.
    "WORK_ATTEMPTS": "12",
}
"""What is not as shipped, so that many turns fit into four minutes. Every limit and the wake-ups are as shipped."""
SHARING = SHORTENED | {
    "GPU_PHASE_ENABLED": "true",
    "COMPUTE_TIER": "simulated",
    "SERVICE_CONTROL": "process",
    "LLM_MODEL": "stub",
}


class Stack:
    """Starts everything below `home`, keeps it alive, and ends it all by process id."""

    def __init__(self, home: Path, *, broken: str | None = None, overrides: dict[str, str] | None = None) -> None:
        self.home = home
        self.logs = home / "logs"
        self.ledger = home / "card.ledger"
        self._broken = broken
        self._processes: dict[str, subprocess.Popen] = {}
        self._quiet_until: dict[str, float] = {}
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._ledger_lock = threading.Lock()
        self._ledger_read = 0
        self._alive: list[tuple[int, str, str]] = []
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        for folder in (self.logs, home / "media", home / "in", home / "broker"):
            folder.mkdir(parents=True)
        self.postgres = EmbeddedPostgres(
            home / "pg", self.logs / "postgres.log", options={"fsync": "off", "max_connections": "200"}
        )
        self.valkey = EmbeddedValkey(home / "vk", self.logs / "valkey.log")
        self.environ = self._environment(overrides or {})
        self.settings = load_settings(self.environ)
        self.parts = Parts(self.settings)

    # --- configuration ------------------------------------------------------------------------------------------

    def _environment(self, overrides: dict[str, str]) -> dict[str, str]:
        ports = dict(zip((*SERVICES, "language_model", "broker"), free_ports(5), strict=True))
        self.ports = ports
        values = {
            **SHARING,
            "DATABASE_URL": self.postgres.url("voxint"),
            "REDIS_URL": self.valkey.url,
            "MEDIA_ROOT": str(self.home / "media"),
            "SERVICE_STATE_DIR": str(self.home / "services"),
            "CARD_LEDGER": str(self.ledger),
            "LLM_BASE_URL": f"http://127.0.0.1:{ports['language_model']}/v1",
        }
        for name in ("acquire", "release", "status"):
            values[f"GPU_LEASE_{name.upper()}_URL"] = f"http://127.0.0.1:{ports['broker']}/gpu/{name}"
        for name in SERVICES:
            values[f"{name.upper()}_URL"] = f"http://127.0.0.1:{ports[name]}"
            values[f"{name.upper()}_COMMAND"] = " ".join(self._stub(name))
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "TMPDIR"}}
        return kept | values | overrides

    def _stub(self, name: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "voxint_models.stub",
            name,
            f"--port={self.ports[name]}",
            f"--start-seconds={START_SECONDS}",
            f"--stop-seconds={STOP_SECONDS}",
            f"--answer-seconds={ANSWER_SECONDS[name]}",
        ]

    def _broker_toml(self) -> Path:
        argv = ", ".join(f'"{word}"' for word in self._stub("language_model"))
        path = self.home / "broker.toml"
        path.write_text(
            f"""
listen = ["127.0.0.1:{self.ports["broker"]}"]
state_dir = "{self.home / "broker"}"

[memory]
kind = "none"

[[service]]
name = "language-model"
kind = "child"
command = [{argv}]
log = "{self.logs / "language_model.log"}"
ready_url = "http://127.0.0.1:{self.ports["language_model"]}/healthz"
environment = {{ CARD_LEDGER = "{self.ledger}" }}
""",
            encoding="utf-8",
        )
        return path

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything, and keep it alive from now on."""
        self.postgres.start()
        self.postgres.make_database("voxint")
        engine = make_engine(self.environ["DATABASE_URL"])
        upgrade(engine)
        engine.dispose()
        self.valkey.start()
        self._broker_toml()
        for name in self.commands:
            self._start(name)
        self._watch.start()

    @property
    def commands(self) -> dict[str, list[str]]:
        """The processes that are ours to start, by kind."""
        python = [sys.executable, "-m"]
        worker = (
            [sys.executable, str(HERE / "broken_worker.py"), self._broken]
            if self._broken
            else [*python, "voxint", "worker"]
        )
        return {
            "broker": [*python, "voxint_broker", "serve", "--config", str(self.home / "broker.toml")],
            "gpu-phase": [*python, "voxint", "worker", "--gpu-phase"],
            "worker-1": [*worker, "--concurrency", str(WORKERS)],
            "worker-2": [*worker, "--concurrency", str(WORKERS)],
            "beat": [*python, "voxint", "beat"],
        }

    def _start(self, name: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self.commands[name],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _keep_alive(self) -> None:
        """What a restart policy does: whatever is down comes back, after its pause."""
        while not self._stop.wait(0.1):
            with self._lock:
                for name, process in list(self._processes.items()):
                    if process.poll() is not None and time.monotonic() >= self._quiet_until.get(name, 0):
                        self._end_group(process)
                        self._start(name)

    def running(self, kind: str) -> list[int]:
        """The process ids of a kind: our own, PostgreSQL, Valkey, or a model server by its ledger."""
        if kind in self._processes:
            process = self._processes[kind]
            return [process.pid] if process.poll() is None else []
        if kind == "postgres":
            pid = self.postgres.running()
            return [pid] if pid else []
        if kind == "valkey":
            return [
                p.pid
                for p in psutil.process_iter(["cmdline"])
                if str(self.home / "vk") in " ".join(p.info["cmdline"] or [])
            ]
        return [pid for pid, _, service in self.on_the_card() if service == kind]

    def pool_child(self, kind: str) -> int | None:
        """The process of a worker's pool that does the work."""
        for pid in self.running(kind):
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(pid).children()
                if children:
                    return children[0].pid
        return None

    def kill(self, kind: str, pause: float) -> bool:
        """kill -9, as a whole container goes; it comes back after a pause. False when there is none to kill."""
        pids = self.running(kind)
        if not pids:
            return False
        with self._lock:
            self._quiet_until[kind] = time.monotonic() + pause
            if kind in self._processes:
                self._end_group(self._processes[kind])
                return True
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if kind in {"postgres", "valkey"}:
            self._bring_back(kind, pause)
        return True

    def _bring_back(self, kind: str, pause: float) -> None:
        server = self.postgres if kind == "postgres" else self.valkey
        time.sleep(pause)
        if kind == "valkey":
            self.valkey.stop()
        server.start()

    @staticmethod
    def _end_group(process: subprocess.Popen) -> None:
        """The group, but not the model services: they have groups of their own and outlive their worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def on_the_card(self) -> list[tuple[int, str, str]]:
        """(pid, side, service) of every model process that lives, by the ledger."""
        with self._ledger_lock:
            self._read_on()
            self._alive = [entry for entry in self._alive if _lives(entry[0])]
            return list(self._alive)

    def _read_on(self) -> None:
        """The lines that came since the last look; a line that is not whole yet waits for the next one."""
        with contextlib.suppress(FileNotFoundError), self.ledger.open("rb") as file:
            file.seek(self._ledger_read)
            whole = file.read().rpartition(b"\n")[0]
            self._ledger_read += len(whole) + 1 if whole else 0
            for raw in whole.splitlines():
                entry = json.loads(raw)
                if entry["event"] == "start":
                    self._alive.append((entry["pid"], entry["side"], entry["service"]))

    def end(self) -> None:
        """End everything that this stack started, model servers too."""
        self._stop.set()
        if self._watch.is_alive():  # not where the start failed
            self._watch.join(5)
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            self._end_group(process)
        for pid, _, _ in self.on_the_card():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.parts.close()
        with contextlib.suppress(Exception):
            self.valkey.stop()
        self.postgres.stop()


def _lives(pid: int) -> bool:
    if not Path("/proc/self/stat").exists():
        return psutil.pid_exists(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
