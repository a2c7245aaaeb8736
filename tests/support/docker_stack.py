"""The shipped compose files as one running stack, for tests/docker: what people do to it, and what they see.

What a test waits for is read with a psql that stays in the database's container; the command line, which people use,
costs a Python's start each time and is asked where it is what the test is about.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import struct
import subprocess
import threading
import time
import wave
from io import BytesIO
from pathlib import Path

from ports import free_port
from real_engine import ROOT, run

FILES = ("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml", "tests/docker/compose.test.yaml")
MODELS = ("whisper", "pyannote", "titanet")
PATIENCE = 2
"""How many times as long as on a quiet machine a test waits before it says that something did not come."""
HELD_SECONDS = 600
"""How long a stand-in holds a phase at most; a test ends it sooner."""
BROKER = "http://broker:9100/gpu"
SHORTENED = {
    "GPU_PHASE_TICK_SECONDS": "5",
    "GPU_PHASE_MIN_DWELL_SECONDS": "0",
    "GPU_PHASE_MAX_AUDIO_SECONDS": "600",
    "WORK_HEARTBEAT_SECONDS": "2",
    "WORK_HEARTBEAT_LIMIT_SECONDS": "30",
    "WORK_ATTEMPTS": "5",
}
"""Settings that differ from their defaults so that a test need not wait; the page of the last run names them."""
SETTINGS = {
    "GPU_PHASE_ENABLED": "true",
    "GPU_LEASE_ACQUIRE_URL": f"{BROKER}/acquire",
    "GPU_LEASE_RELEASE_URL": f"{BROKER}/release",
    "GPU_LEASE_STATUS_URL": f"{BROKER}/status",
    "LLM_BASE_URL": "http://broker:8001/v1",
    "CONSOLE_PASSWORD": "a password for tests alone",
}
_SLOW = {
    "draining_post": {
        "language_model": {"answer_seconds": 4}
    },  # more, and it is not taken for ready: then nothing begins
    "starting_services": {"whisper": {"start_seconds": HELD_SECONDS}},
    "audio": {"whisper": {"answer_seconds": HELD_SECONDS}},
    "draining": {"whisper": {"answer_seconds": HELD_SECONDS}},
    "stopping_services": {"whisper": {"stop_seconds": 13}},  # the container's own grace is 15 s
}
_PENDING = {"acquiring": {"acquire": "pending"}, "releasing": {"release": "pending"}}
_EVENTS = """select coalesce(json_agg(e order by id), '[]') from (select id, from_phase as "from", to_phase as "to", cause,
reason, seconds, at from gpu_phase_event where id > {after}) e"""
_RUNNING = "select count(*) from work_item where state = 'running' and kind = '{kind}'"


def tone(seconds, pitch):
    """A recording: mono, 16 kHz, 16 bit."""
    rate, file = 16000, BytesIO()
    samples = (int(8000 * math.sin(2 * math.pi * pitch * n / rate)) for n in range(int(seconds * rate)))
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue()


class Questions:
    """A psql in the database's container that stays: a process for every look would keep a small machine busy."""

    ANSWER_SECONDS = 20

    def __init__(self, engine, container):
        self.argv = ["docker", "--host", engine.host, "exec", "-i", container]
        self.argv += ["psql", "-h", "/var/run/postgresql", "-U", "voxint", "-AtqX"]
        self.psql = None
        self.asked = 0

    def ask(self, query):
        """The answer's text; None for none, and where there is no answer now: then the next question begins anew."""
        if self.psql is None:
            pipe = subprocess.PIPE
            nowhere = subprocess.DEVNULL
            self.psql = subprocess.Popen(self.argv, stdin=pipe, stdout=pipe, stderr=nowhere, bufsize=0)
        self.asked += 1
        end = f"answered-{self.asked}\n"
        try:
            self.psql.stdin.write(f"{query};\n\\echo {end}".encode())
            return self._read_to(end.encode())
        except OSError:
            self.close()
            return None

    def _read_to(self, end):
        said, until = b"", time.monotonic() + self.ANSWER_SECONDS
        while not (said == end or said.endswith(b"\n" + end)):
            ready, _, _ = select.select([self.psql.stdout], [], [], max(until - time.monotonic(), 0))
            part = os.read(self.psql.stdout.fileno(), 65536) if ready else b""
            if not part:
                raise OSError("no answer")
            said += part
        return said[: -len(end)].decode().strip() or None

    def close(self):
        if self.psql is not None:
            self.psql.kill()
            self.psql.stdin.close()
            self.psql.stdout.close()
            self.psql.wait()
            self.psql = None


class Stack:
    """One compose project of the shipped files, and what the world does to it."""

    def __init__(self, engine, compose, project="voxint-test", files=FILES, settings=None):
        self.engine = engine
        self.compose = compose
        self.project = project
        self.files = files
        self.client = engine.client()
        self.questions = Questions(engine, f"{project}-postgres-1")
        self.deaths = []
        self.added = 0
        self.as_shipped = False
        self.environ = {
            "COMPOSE_PROJECT_NAME": project,
            "DOCKER_SOCKET": engine.socket,
            "DOCKER_GID": str(Path(engine.socket).stat().st_gid),
            "CONSOLE_PUBLISH": f"127.0.0.1:{free_port()}",
            **({**SETTINGS, **SHORTENED} if settings is None else settings),
        }

    # --- compose -----------------------------------------------------------------------------------------------

    def dc(self, *argv, files=None, environ=None, **options):
        """`docker compose` with the stack's files."""
        if argv[0] in {"up", "down", "stop"}:
            self.as_shipped = False
        names = [part for name in files or self.files for part in ("-f", str(ROOT / name))]
        settings = {**os.environ, "DOCKER_HOST": self.engine.host, **self.environ, **(environ or {})}
        return run([*self.compose, *names, *argv], cwd=ROOT, env=settings, **options)

    def up(self, *argv, **options):
        done = self.dc("up", "-d", *argv, timeout=400, **options)
        self.as_shipped = not options.keys() & {"files", "environ"}
        return done

    def close(self):
        self.questions.close()
        self.down()
        self.client.close()

    def down(self):
        self.dc("down", "-v", "-t", "3", "--remove-orphans", timeout=240, check=False)

    def voxint(self, *argv, **options):
        """The CLI, as the documents have it."""
        return self.dc("exec", "-T", "api", "voxint", *argv, **options)

    def inside(self, service, *argv, **options):
        """A command in the container of a service, without compose; `stdin` through `-i`."""
        flags = ["-i"] if "input" in options else []
        return self.engine.cli("exec", *flags, f"{self.project}-{service}-1", *argv, **options)

    # --- containers --------------------------------------------------------------------------------------------

    def containers(self, service, **more):
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        return self.client.containers.list(all=True, filters={"label": labels, **more})

    def container(self, service):
        found = self.containers(service)
        assert found, f"no container of {service}"
        return found[0]

    def states(self, *services):
        return {name: [one.attrs["State"] for one in self.containers(name)] for name in services}

    def running(self):
        """The model services of which a container runs."""
        return {name for name in MODELS for one in self.containers(name) if one.status in {"running", "paused"}}

    def kill(self, service):
        """`docker kill`. The engine takes it for a person's wish, and no restart policy acts: all but models are started."""
        if service in MODELS:  # the phase in which it is started begins before it runs
            self.wait(lambda: service in self.running(), 60, f"{service} runs, to be killed")
        self.container(service).kill()
        if service not in MODELS:
            self.container(service).start()

    def crash(self, service):
        """End the container's first process from outside, as a fault in it would: its restart policy is to act."""
        container = self.container(service)
        if not self.engine.own:
            self.kill(service)
            return
        before = container.attrs["State"]["StartedAt"]
        os.kill(container.attrs["State"]["Pid"], signal.SIGKILL)

        def is_back():
            state = self.container(service).attrs["State"]
            return state["Running"] and state["StartedAt"] != before

        self.wait(is_back, 60, f"the engine starts {service} again")

    def watch(self):
        """Take down every death of a container, with its exit code, until the engine ends."""

        def listen():
            with contextlib.suppress(Exception):
                for event in self.client.events(decode=True, filters={"event": "die"}):
                    labels = event["Actor"]["Attributes"]
                    if labels.get("com.docker.compose.project") == self.project:
                        self.deaths.append((labels["com.docker.compose.service"], int(labels["exitCode"])))

        threading.Thread(target=listen, daemon=True).start()

    # --- the stand-ins -----------------------------------------------------------------------------------------

    def behave(self, **switches):
        """How the model and language-model stand-ins behave from now on; nothing named: as usual."""
        self._card("stub.json", switches)

    def broker(self, **switches):
        """How the lease broker answers from now on: acquire, release = pending, refused, failed; usual without."""
        self._card("broker.json", switches)

    def as_usual(self):
        self.behave()
        self.broker()

    def _card(self, name, value):
        script = "import os,sys; p='/card/'+sys.argv[1]; open(p+'.new','w').write(sys.argv[2]); os.replace(p+'.new',p)"
        write = ["python3", "-c", script, name, json.dumps(value)]
        self.wait(lambda: self.inside("broker", *write, check=False).returncode == 0, 60, "the broker's container runs")

    def ledger(self):
        """What the model processes of both sides wrote down, in order."""
        done = self.inside("broker", "cat", "/card/card.ledger", check=False)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    # --- voxint ------------------------------------------------------------------------------------------------

    def add(self, seconds=2.0):
        """One new recording; gives its number."""
        self.added += 1
        path = f"/media/voxint/recording-{self.added}-{time.monotonic_ns()}.wav"
        write = ["python3", "-c", f"import sys; open({path!r}, 'wb').write(bytes.fromhex(sys.stdin.read()))"]
        self.inside("api", *write, input=tone(seconds, 200 + 7 * self.added).hex())
        return int(self.inside("api", "voxint", "runs", "add", path).stdout.split()[0])

    def sql(self, query):
        """The one value of a query; None where the database cannot be asked now, or has none."""
        return self.questions.ask(query)

    def phase(self):
        return self.sql("select phase from gpu_phase")

    def version(self):
        """A number that grows with each tick that is saved."""
        return int(self.sql("select version from gpu_phase") or 0)

    def events(self, after=0):
        """The changes of phase after one of them, oldest first."""
        return json.loads(self.sql(_EVENTS.format(after=after)) or "[]")

    def last_event(self):
        return int(self.sql("select coalesce(max(id), 0) from gpu_phase_event") or 0)

    def at_work(self, kind):
        """How many stages of a kind are worked on now."""
        return int(self.sql(_RUNNING.format(kind=kind)) or 0)

    def runs(self):
        found = self.sql("select coalesce(json_object_agg(id, status), '{}') from run")
        return {int(id_): status for id_, status in json.loads(found or "{}").items()}

    def last_error(self):
        return self.sql("select last_error from gpu_phase") or ""

    def status(self):
        """The CLI's own answer; nothing where it cannot be asked now."""
        done = self.voxint("gpu-phase", "status", "--json", check=False)
        with contextlib.suppress(ValueError):
            return json.loads(done.stdout)
        return {}

    # --- waiting -----------------------------------------------------------------------------------------------

    def wait(self, what, seconds, words):
        """Look again until it is so; what the stack says is part of the error."""
        seconds *= PATIENCE
        until = time.monotonic() + seconds
        while True:
            value = what()
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError(f"not within {seconds} s: {words}\n{self.told()}")
            time.sleep(0.2)

    def wait_phase(self, *phases, seconds=120):
        return self.wait(lambda: self.phase() in phases, seconds, f"phase {phases}")

    def wait_ticks(self, seconds=120):
        """Ticks are saved again, two of them: the first may have begun before."""
        before = self.wait(self.version, seconds, "the database answers")
        self.wait(lambda: self.version() >= before + 2, seconds, "ticks are saved")

    def wait_done(self, ids, seconds=240):
        def all_done():
            runs = self.runs()
            assert "failed" not in {runs.get(one) for one in ids}, f"{runs}\n{self.told()}"
            return all(runs.get(one) == "done" for one in ids)

        self.wait(all_done, seconds, f"recordings {ids} done")

    def settle(self, seconds=240):
        """Back in llm with nothing running, the language model ready."""
        ready = "select 1 from gpu_phase where phase = 'llm' and llm_ready"
        self.wait(lambda: self.sql(ready) and not self.running(), seconds, "llm, ready, and no model container runs")

    def hold(self, phase):
        """Let the stand-ins hold the GPU in a phase from now on, and in no other."""
        self.behave(**_SLOW.get(phase, {}))
        self.broker(**_PENDING.get(phase, {}))

    def reach(self, phase):
        """Wait until the GPU is held in a phase, with a recording on its way; the numbers of those that had to be added."""
        self.hold(phase)
        recordings = []
        if phase == "draining_post":
            recordings.append(self.add())
            self.wait(lambda: self.at_work("enhance_match"), 120, "language-model work in progress")
            self.behave(language_model={"answer_seconds": HELD_SECONDS})  # for the call in progress too
        if phase == "draining_post" or not self.open_runs():
            recordings.append(self.add())
        if phase in {"audio", "draining"}:
            self.wait(lambda: self.at_work("transcribe"), 120, "a transcription in progress")
        if phase == "draining":
            self.voxint("gpu-phase", "release")
        self.wait_phase(phase)
        return recordings

    def open_runs(self):
        return [one for one, status in self.runs().items() if status in {"queued", "running"}]

    def told(self):
        """What a person would look at."""
        parts = [json.dumps(self.status()), json.dumps(self.events()[-8:], indent=0), str(self.runs())]
        logs = ("logs", "--no-log-prefix", "--tail", "25")
        parts += [self.dc(*logs, service, check=False).stdout for service in ("gpu-phase", "worker", "broker")]
        parts.append(self.dc("ps", "-a", "--format", "{{.Service}} {{.Status}}", check=False).stdout)
        return "\n".join(parts)


def wrong_side(ledger):
    """Starts and requests of one side while the other was on the card. Ends of killed processes are not written."""
    wrong, last = [], {}
    for event in ledger:
        if event["event"] == "start":
            last[event["side"], event["service"]] = event["at"]
        elif event["event"] == "request_start":
            other = "llm" if event["side"] == "audio" else "audio"
            since = last.get((event["side"], event["service"]), "")
            wrong += [(event, at) for (side, _), at in last.items() if side == other and at > since]
    return wrong
