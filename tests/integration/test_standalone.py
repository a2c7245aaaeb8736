"""`voxint standalone` as its user has it: started, stopped, killed, started again; stand-ins in place of the models."""

import json
import os
import signal
import stat
import subprocess
import sys

import psutil
import psycopg
import pytest
from made_wav import made_wav

from voxint.standalone.home import Home

pytestmark = pytest.mark.timeout(300)
UP = 90  # seconds; a busy machine is slow


class Standalone:
    """One data folder, and what runs on it."""

    def __init__(self, processes, home, environ):
        self.processes = processes
        self.home = Home(home)
        self.environ = {**environ, "VOXINT_HOME": str(home), "GPU_PHASE_MIN_DWELL_SECONDS": "0"}
        self.log = processes.log("standalone")
        self.process = None
        self.eventually = None

    def start(self):
        before = self.said().count("ready:")
        self.process = self.processes.start(
            ["python", "-m", "voxint", "standalone", "--stand-ins"], env=self.environ, name="standalone"
        )
        self.eventually(
            lambda: self.said().count("ready:") > before or self.process.poll() is not None, UP, "not ready"
        )
        assert self.process.poll() is None, self.said()

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    def voxint(self, *arguments):
        environ = {name: value for name, value in self.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
        return subprocess.run(
            [sys.executable, "-m", "voxint", *arguments], env=environ, capture_output=True, text=True, check=False
        )

    def ask(self, query):
        url = next(
            line.split("=", 1)[1]
            for line in self.home.environment.read_text().splitlines()
            if line.startswith("DATABASE_URL=")
        )
        with psycopg.connect(url) as connection:
            return connection.execute(query).fetchall()

    def phase(self):
        return next(iter(self.ask("SELECT phase FROM gpu_phase")), (None,))[0]

    def statuses(self):
        return [status for (status,) in self.ask("SELECT status FROM run ORDER BY id")]

    def living(self):
        """Every process of this folder, by a word that names it."""
        found = {}
        for process in psutil.process_iter():
            try:
                # A server that writes its own title loses its environment from sight; it works in its folder.
                ours = process.environ().get("VOXINT_HOME") == str(self.home.folder) or process.cwd().startswith(
                    str(self.home.folder)
                )
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
            except psutil.Error:
                continue
        mine = os.getpid()
        return {pid: words for pid, words in found.items() if pid != mine}

    def pids(self, *words):
        """The processes whose command line has all the words, the oldest first."""
        return sorted(pid for pid, line in self.living().items() if all(word in line for word in words))


@pytest.fixture
def standalone(processes, tmp_path, eventually):
    environ = {
        name: value
        for name, value in os.environ.items()
        if name == "GPU_PHASE_FOLLOW_UP_SECONDS" or not name.startswith(("GPU_", "LLM_", "VOXINT_"))
    }
    environ["STUB_CONTROL"] = str(tmp_path / "stub.json")
    made = Standalone(processes, tmp_path / "home", environ)
    made.eventually = eventually
    yield made
    if made.process is not None and made.process.poll() is None:
        processes.end(made.process, limit_seconds=40)
    made.voxint("standalone", "--stop")


@pytest.fixture
def recording(tmp_path):
    return made_wav(tmp_path / "meeting.wav", 3)


def test_a_recording_goes_through_and_a_stop_leaves_nothing_running(standalone, recording, eventually):
    standalone.start()
    assert stat.S_IMODE(standalone.home.environment.stat().st_mode) == 0o600
    added = standalone.voxint("runs", "add", str(recording))
    assert added.returncode == 0, added.stderr
    eventually(lambda: standalone.statuses() == ["done"], 60, "not done")
    hands = [phase for (phase,) in standalone.ask("SELECT to_phase FROM gpu_phase_event ORDER BY id")]
    assert [phase for phase in hands if phase in {"llm", "audio"}] == ["llm", "audio", "llm"]

    second = standalone.voxint("standalone", "--stand-ins")
    assert second.returncode == 1
    assert f"already runs on {standalone.home.folder} (process {standalone.process.pid})" in second.stderr

    standalone.process.send_signal(signal.SIGTERM)
    assert standalone.process.wait(60) == 0
    assert standalone.living() == {}

    standalone.start()
    assert standalone.statuses() == ["done"]
    assert standalone.voxint("runs", "list").returncode == 0


def test_a_stop_in_audio_gives_the_gpu_back_and_uses_no_attempt(standalone, recording, tmp_path, eventually):
    (tmp_path / "stub.json").write_text(json.dumps({"whisper": {"answer_seconds": 60}}))
    standalone.start()
    assert standalone.voxint("runs", "add", str(recording)).returncode == 0
    eventually(lambda: standalone.ask("SELECT 1 FROM work_item WHERE kind = 'transcribe' AND state = 'running'"), 60)
    standalone.process.send_signal(signal.SIGINT)
    assert standalone.process.wait(60) == 0
    assert standalone.living() == {}
    (tmp_path / "stub.json").write_text("{}")
    standalone.start()
    eventually(lambda: standalone.statuses() == ["done"], 60, "it did not go on")
    assert standalone.ask("SELECT attempts FROM work_item WHERE kind = 'transcribe'") == [(1,)]
    assert standalone.ask("SELECT failures FROM gpu_phase") == [(0,)]


def test_after_a_kill_of_the_supervisor_everything_goes_on(standalone, recording, tmp_path, eventually):
    (tmp_path / "stub.json").write_text(json.dumps({"whisper": {"answer_seconds": 60}}))
    standalone.start()
    assert standalone.voxint("runs", "add", str(recording)).returncode == 0
    eventually(lambda: standalone.ask("SELECT 1 FROM work_item WHERE kind = 'transcribe' AND state = 'running'"), 60)
    models = standalone.pids("voxint_models.stub")
    assert len(models) == 3
    postgres = standalone.pids("bin/postgres", "-D")
    assert standalone.pids("valkey-server")
    assert postgres
    standalone.process.kill()
    standalone.process.wait()

    def ended():
        return not standalone.pids("voxint", "worker", "--gpu-phase") and not standalone.pids("valkey-server")

    eventually(ended, 10, "its children outlived it")
    assert standalone.pids("voxint_models.stub") == models, "the model processes wait for the next start"

    (tmp_path / "stub.json").write_text("{}")
    standalone.start()
    assert set(postgres) & set(standalone.pids("bin/postgres")), "PostgreSQL is adopted"
    eventually(lambda: standalone.statuses() == ["done"], 120, "it did not go on")
    assert standalone.ask("SELECT count(*) FROM stage_result WHERE kind = 'transcribe'") == [(1,)]


KILLED = [
    ("voxint_broker",),
    ("voxint", "worker", "--gpu-phase"),
    ("voxint", "worker", "--concurrency"),
    ("voxint", "beat"),
    ("voxint", "serve"),
    ("valkey-server",),
    ("bin/postgres", "-D"),
]


def test_whatever_is_killed_is_started_again_and_the_work_gets_done(standalone, recording, eventually):
    standalone.start()
    for words in KILLED:
        before = standalone.pids(*words)
        assert before, words
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda w=words, b=before: set(standalone.pids(*w)) - set(b), 40, f"{words} was not started again")
    eventually(lambda: standalone.voxint("runs", "add", str(recording)).returncode == 0, 60, "cannot add")
    eventually(lambda: standalone.statuses() == ["done"], 90, "not done")


def test_what_a_killed_one_left_can_be_stopped(standalone, eventually):
    standalone.start()
    standalone.process.kill()
    standalone.process.wait()
    eventually(lambda: standalone.home.runs_as() is None, 5)
    stopped = standalone.voxint("standalone", "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "PostgreSQL" in stopped.stderr
    assert standalone.living() == {}
    assert "nothing runs" in standalone.voxint("standalone", "--stop").stderr


def test_the_running_one_can_be_stopped_from_elsewhere(standalone):
    standalone.start()
    stopped = standalone.voxint("standalone", "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert standalone.process.wait(10) == 0
    assert standalone.living() == {}


def test_a_setting_that_cannot_be_used_is_told_and_nothing_is_left(standalone):
    standalone.environ["GPU_PHASE_TICK_SECONDS"] = "2"
    ended = standalone.voxint("standalone", "--stand-ins")
    assert ended.returncode == 1
    assert "GPU_PHASE_TICK_SECONDS" in ended.stderr
    assert standalone.living() == {}


def test_a_file_that_cannot_be_written_is_told_in_a_line_and_nothing_is_left(standalone):
    (standalone.home.folder / "broker.toml" / "in the way").mkdir(parents=True)  # as on a full disk
    ended = standalone.voxint("standalone", "--stand-ins")
    assert ended.returncode == 1
    assert f"could not run in {standalone.home.folder}: " in ended.stderr
    assert "broker.toml" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert standalone.living() == {}
