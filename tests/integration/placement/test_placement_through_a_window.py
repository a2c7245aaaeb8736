"""A whole audio window in which one real process comes up on the CPU: what each action does, and what the history says."""

from __future__ import annotations

import sys
import time
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from phase_world import STAGES, FakeBroker, FakeLanguageModel
from ports import free_port
from sqlalchemy import text

from voxint.gpu_phase.model import Phase, RequestKind
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.store import PhaseStore
from voxint.gpu_phase.tick import Machine, tick
from voxint.gpu_phase.wording import history
from voxint.services.placement.judge import Verdict
from voxint.services.placement.store import PlacementStore
from voxint.services.placement.watch import PlacementWatch
from voxint.services.process import ProcessControl
from voxint.settings import load_settings

DRAWS = Path(__file__).parents[2] / "support" / "draws_its_device.py"
NAMES = ("whisper", "pyannote", "titanet")
ALWAYS, NEVER = 1000, 0


class Window:
    """A machine over a real database and real processes; pyannote is on the CPU at its first `bad_starts` starts."""

    def __init__(self, engine, folder, action, bad_starts, **more):
        self.folder = folder
        environ = {
            "COMPUTE_TIER": "gpu",
            "SERVICE_CONTROL": "process",
            "SERVICE_STATE_DIR": str(folder / "run"),
            "GPU_PLACEMENT_ACTION": action,
            **more,
        }
        for name in NAMES:
            port = free_port()
            bad = bad_starts if name == "pyannote" else NEVER
            environ[f"{name.upper()}_URL"] = f"http://127.0.0.1:{port}"
            environ[f"{name.upper()}_COMMAND"] = (
                f"{sys.executable} {DRAWS} {folder / name}.starts {bad} {name} --host 127.0.0.1 --port {port}"
            )
        settings = load_settings(environ)
        self.control = ProcessControl(settings)
        self.placement = PlacementStore(engine)
        self.store = PhaseStore(engine, STAGES, grace=timedelta(seconds=60), attempts=3)
        watch = PlacementWatch(settings, self.placement, self.control)
        policy = Policy(min_dwell=timedelta(0), start_limit=timedelta(seconds=90))
        self.machine = Machine(self.store, FakeBroker(), self.control, FakeLanguageModel(), policy, watch)

    def go_to(self, *phases, limit_seconds=100):
        until = time.monotonic() + limit_seconds
        while time.monotonic() < until:
            report = tick(self.machine)
            if report.state is not None and report.state.phase in phases:
                return report.state
            time.sleep(0.05)
        pytest.fail(f"never reached {phases}: {self.lines()}")

    def lines(self):
        since = self.store.now() - timedelta(days=1)
        return [" | ".join(history.row(event, UTC)[i] for i in (1, 3, 4)) for event in self.store.events(since)]

    def starts(self, name):
        return int((self.folder / f"{name}.starts").read_text())

    def end(self):
        for _ in range(40):
            self.control.stop()
            if all(seen.condition == "stopped" for seen in self.control.inspect()):
                return
        pytest.fail("the services did not stop")


@pytest.fixture
def window(engine, tmp_path):
    made = []
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at)"
                " VALUES ('t', 's', 'file', 'f', voxint_now())"
            )
        )
        connection.execute(
            text(
                "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                " SELECT id, 'acquire', 'gpu', voxint_now(), voxint_now() FROM run"
            )
        )

    def make(action, bad_starts, **more):
        made.append(Window(engine, tmp_path, action, bad_starts, **more))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_warn_goes_into_audio_and_the_history_says_why_it_will_be_slow(window):
    w = window("warn", ALWAYS)
    state = w.go_to(Phase.AUDIO)
    assert state.note == "pyannote runs on cpu, expected cuda"
    assert w.lines()[-1] == (
        "starting_services | audio | all model services were up: pyannote runs on cpu, expected cuda"
    )
    assert w.starts("pyannote") == 1
    assert w.placement.placed()["pyannote"].verdict is Verdict.WRONG
    assert w.placement.placed()["whisper"].verdict is Verdict.OK
    # In the window it is looked at in each tick, and said, and nothing is done.
    assert tick(w.machine).state.note == "pyannote runs on cpu, expected cuda"
    assert w.starts("pyannote") == 1


def test_restart_cures_a_service_that_drew_the_cpu_once(window):
    w = window("restart", 1)
    w.go_to(Phase.AUDIO)
    assert {name: w.starts(name) for name in NAMES} == {"whisper": 1, "pyannote": 2, "titanet": 1}
    assert w.lines()[-1] == (
        "starting_services | audio | all model services were up: "
        "pyannote came up on the wrong device, and runs on cuda after 1 restart"
    )
    placed = w.placement.placed()["pyannote"]
    assert (placed.verdict, placed.device, placed.restarts) == (Verdict.OK, "cuda", 1)
    assert tick(w.machine).state.note is None


def test_restart_tries_once_and_then_goes_on_with_a_warning(window):
    w = window("restart", ALWAYS)
    w.go_to(Phase.AUDIO)
    assert {name: w.starts(name) for name in NAMES} == {"whisper": 1, "pyannote": 2, "titanet": 1}
    assert w.lines()[-1] == (
        "starting_services | audio | all model services were up: pyannote runs on cpu, expected cuda (1 restart tried)"
    )
    for _ in range(3):
        tick(w.machine)
    assert w.starts("pyannote") == 2, "no restart while recordings are at work"


def test_abort_hands_the_gpu_back_with_the_reason(window):
    w = window("abort", ALWAYS)
    w.go_to(Phase.STOPPING_SERVICES)
    assert w.lines()[-1] == (
        "starting_services | stopping_services | a model service came up on the wrong device: "
        "pyannote runs on cpu, expected cuda (1 restart tried)"
    )
    state = w.go_to(Phase.LLM)
    assert state.last_error == "pyannote runs on cpu, expected cuda (1 restart tried)"
    assert state.failures == 1
    assert state.retry_after > state.phase_since
    assert w.machine.broker.lease is None
    assert w.starts("pyannote") == 2


def test_abort_with_a_service_that_drew_the_cpu_once_comes_to_audio(window):
    w = window("abort", 1)
    state = w.go_to(Phase.AUDIO)
    assert state.last_error is None
    assert w.starts("pyannote") == 2


def test_off_asks_nothing_and_audio_begins(window):
    w = window("off", ALWAYS)
    state = w.go_to(Phase.AUDIO)
    assert state.note is None
    assert w.placement.placed() == {}


@pytest.mark.parametrize(
    "harmless",
    [{"COMPUTE_TIER": "simulated"}, {"COMPUTE_TIER": "rocm"}, {"GPU_PLACEMENT_EXPECT": "pyannote=cuda|cpu"}],
)
def test_where_the_cpu_is_right_abort_is_silent(window, harmless):
    w = window("abort", ALWAYS, **harmless)
    state = w.go_to(Phase.AUDIO)
    assert (state.note, w.starts("pyannote")) == (None, 1)
    assert w.lines()[-1] == "starting_services | audio | all model services were up"


def test_the_hand_back_does_not_wait_for_the_look(window):
    w = window("abort", NEVER)
    w.go_to(Phase.AUDIO)

    class Broken:
        def look(self, *_):
            pytest.fail("the way back asks about devices")

    object.__setattr__(w.machine, "placement", Broken())
    w.store.record_request(RequestKind.RELEASE, "test")
    w.go_to(Phase.LLM)


def test_restarts_are_counted_by_start_and_survive_the_process(engine, window):
    w = window("restart", ALWAYS)
    state = w.go_to(Phase.AUDIO)
    again = PlacementStore(engine)
    assert again.placed()["pyannote"].restarts == 1
    assert again.restarts("pyannote", state.phase_since) == 0, "another start counts anew"


def test_a_baseline_is_kept_replaced_and_forgotten(engine):
    store = PlacementStore(engine)
    assert store.baselines() == {}
    store.keep_baseline("speaches", 947, "characters")
    store.keep_baseline("speaches", 1050.5, "characters")
    kept = store.baselines()["speaches"]
    assert (kept.rate, kept.unit) == (1050.5, "characters")
    assert kept.made_at.tzinfo is not None
    assert store.forget_baseline("speaches")
    assert not store.forget_baseline("speaches")
