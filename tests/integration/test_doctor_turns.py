"""Doctor on what keeps the turns from being taken: what a real tick could not ask, a dwell without room, no weights."""

from __future__ import annotations

import contextlib
import sys
from datetime import timedelta

import pytest
from docker_engine import PROJECT, SERVICE, FakeContainer, FakeEngine
from doctor_world import CLOSED, environment
from small_broker import SmallBroker
from stored_phase import add_recordings, store_phase

from voxint.cli.main import main
from voxint.doctor import gpu, host
from voxint.doctor.checks import surroundings
from voxint.doctor.finding import Severity
from voxint.doctor.weights import weights
from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.status import look
from voxint.gpu_phase.tick import tick
from voxint.settings import load_settings
from voxint.wiring import make


@pytest.fixture
def parts_with(tmp_path, database_url, redis_url):
    with contextlib.ExitStack() as stack:

        def build(**more):
            parts = make(load_settings(environment(tmp_path, database_url, redis_url, **more)))
            stack.callback(parts.close)
            return parts

        yield build


@pytest.fixture
def engine_socket(tmp_path, monkeypatch):
    """An engine with the three services, stopped; its socket is there once it serves."""
    made = FakeEngine(tmp_path / "docker.sock")
    for name in ("whisper", "pyannote", "titanet"):
        labels = {PROJECT: "voxint", SERVICE: name}
        made.add(FakeContainer(f"voxint-{name}-1", labels, ["sleep", "60"], str(tmp_path / "log")))
    monkeypatch.setenv("DOCKER_HOST", made.host)
    yield made
    made.close()


@pytest.fixture
def broker():
    made = SmallBroker()
    yield made
    made.close()


def leases(url):
    return {f"GPU_LEASE_{name.upper()}_URL": f"{url}/gpu/{name}" for name in ("acquire", "release", "status")}


def line(parts):
    (found,) = gpu.sharing(surroundings(parts))
    return found.severity, found.text


def test_the_sharing_line_turns_when_docker_or_the_broker_cannot_be_asked_and_back(
    parts_with, engine, engine_socket, broker, monkeypatch, tmp_path, database_url, redis_url, capsys, eventually
):
    """The post lane is open all the while: nothing else would say that no recording will ever begin."""
    wanted = {"SERVICE_CONTROL": "docker", "LLM_ENABLED": "false", "GPU_PHASE_MIN_DWELL_SECONDS": "3600"}
    parts = parts_with(**wanted, **leases(broker.url))
    store_phase(engine, "llm")
    add_recordings(engine, 1)

    tick(parts.machine)
    severity, text = line(parts)
    assert severity is Severity.WARN
    assert "No switch to audio begins until this is mended: could not inspect whisper" in text
    assert "docker.sock" in text
    assert look(parts.phase_store, parts.settings).post_lane.open

    engine_socket.serve()
    # A busy machine may let the engine's or the broker's limit pass: then the next tick looks again.
    eventually(lambda: tick(parts.machine) and line(parts)[0] is Severity.OK, 60)
    assert line(parts) == (Severity.OK, "llm: the language model has the GPU")

    away = parts_with(**wanted, **leases(CLOSED))
    tick(away.machine)
    severity, text = line(away)
    assert severity is Severity.WARN
    assert "until this is mended: could not ask the broker who holds the GPU: " in text
    assert "connection refused" in text.lower()
    assert look(away.phase_store, away.settings).post_lane.open

    for name, value in environment(tmp_path, database_url, redis_url, **wanted, **leases(CLOSED)).items():
        monkeypatch.setenv(name, value)
    assert main(["gpu-phase", "status"]) == 0
    out, err = capsys.readouterr()
    lines = dict(row.split(":", 1) for row in out.splitlines())
    assert "(no switch to audio begins until this is mended: could not ask the broker" in lines["gpu lane"]
    assert lines["post lane"].strip() == "open; 0 waiting, 0 running"
    assert lines["next try"].strip() == "once what could not be asked answers"
    assert "No switch to audio begins until this is mended" in err
    assert main(["gpu-phase", "audio-now"]) == 0
    assert "But no switch to audio begins until this is mended: " in capsys.readouterr().out
    tick(away.machine)
    assert look(away.phase_store, away.settings).phase is Phase.LLM

    eventually(
        lambda: tick(parts.machine) and look(parts.phase_store, parts.settings).phase is Phase.DRAINING_POST,
        60,
        "audio-now was kept, and is acted on",
    )
    assert line(parts)[0] is Severity.OK


@pytest.mark.parametrize(
    ("dwell", "more", "warned"),
    [
        ("0", {}, True),
        ("30", {}, True),
        ("30.5", {}, False),
        ("600", {}, False),
        ("0", {"LLM_ENABLED": "false"}, False),
        ("0", {"GPU_PHASE_ENABLED": "false"}, False),
    ],
)
def test_a_dwell_that_one_tick_uses_up_is_a_warning(parts_with, dwell, more, warned):
    parts = parts_with(GPU_PHASE_TICK_SECONDS="30", GPU_PHASE_MIN_DWELL_SECONDS=dwell, **more)
    found = host.dwell(surroundings(parts))
    assert [one.severity for one in found] == [Severity.WARN] * warned
    if warned:
        assert f"GPU_PHASE_MIN_DWELL_SECONDS ({dwell}) is not above GPU_PHASE_TICK_SECONDS (30)" in found[0].text


@pytest.mark.parametrize(("dwell", "opens"), [("0", False), ("600", True)])
def test_and_with_such_a_dwell_the_language_model_s_jobs_never_get_a_turn(
    parts_with, engine, broker, monkeypatch, dwell, opens
):
    """What the warning says: the tick that finds the language model ready moves on in the same step."""
    parts = parts_with(LLM_ENABLED="false", GPU_PHASE_MIN_DWELL_SECONDS=dwell, **leases(broker.url))
    store_phase(engine, "llm", age=timedelta(seconds=1))
    add_recordings(engine, 1)
    add_recordings(engine, 1, kind="enhance_match", lane="post")
    report = tick(parts.machine)
    assert ("post" in report.opened) is opens
    assert (report.state.phase is Phase.LLM) is opens


def test_weights_that_are_not_there_are_a_warning_that_names_the_command(parts_with, tmp_path, monkeypatch):
    monkeypatch.setenv("MODELS_ROOT", str(tmp_path / "models"))
    found = {one.code: one for one in weights(surroundings(parts_with(COMPUTE_TIER="gpu")))}
    assert set(found) == {"weights whisper", "weights pyannote", "weights titanet"}
    assert {one.severity for one in found.values()} == {Severity.WARN}
    assert "run `voxint models fetch --service titanet`" in found["weights titanet"].text
    assert "HF_TOKEN" in found["weights pyannote"].text

    from voxint_models.weights.catalogue import CATALOGUE

    (there,) = (one for one in CATALOGUE if one.service == "titanet")
    for file in there.files:
        path = tmp_path / "models" / there.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as made:
            made.truncate(file.size)  # a hole: the listing looks at sizes
    found = {one.code: one.severity for one in weights(surroundings(parts_with(COMPUTE_TIER="gpu")))}
    assert (found["weights titanet"], found["weights whisper"]) == (Severity.OK, Severity.WARN)


def test_weights_that_nobody_needs_here_are_not_looked_at(parts_with, monkeypatch):
    def none_of(**more):
        (found,) = weights(surroundings(parts_with(**more)))
        return found.severity, found.text

    assert none_of() == (Severity.OFF, "not looked at: they come with the packages (COMPUTE_TIER=simulated)")
    assert none_of(SERVICE_CONTROL="docker", COMPUTE_TIER="gpu")[0] is Severity.OFF
    monkeypatch.setattr("voxint.doctor.weights.find_spec", lambda _name: None)
    assert "not part of this installation" in none_of(COMPUTE_TIER="gpu")[1]


def test_a_listing_that_breaks_is_a_warning(parts_with, monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    (found,) = weights(surroundings(parts_with(COMPUTE_TIER="gpu")))
    assert found.severity is Severity.WARN
    assert found.text.startswith("could not be listed: ")


def test_on_rocm_a_service_that_is_not_up_brings_the_groups_of_the_card_to_mind(parts_with):
    """A container without them starts, and cannot open the card: only the hint says what to look at."""
    parts = parts_with(COMPUTE_TIER="rocm", SERVICE_CONTROL="none")
    found = {one.code: one for one in gpu.model_services(surroundings(parts))}
    assert {one.severity for one in found.values()} == {Severity.FAIL}
    assert [name for name, one in found.items() if "RENDER_GID" in one.text] == ["service whisper"]
