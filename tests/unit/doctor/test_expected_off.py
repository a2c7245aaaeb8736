"""Off on purpose: only what looks stopped, only while the phase task runs, only in a phase in which it should be."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from phase_views import view_of

from voxint.doctor.expected import Probe, Side, finding
from voxint.doctor.finding import Finding, Severity, document, failed
from voxint.doctor.host import GIB, room, size
from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.policy import Policy

REFUSED = Probe(ready=False, looks_stopped=True, detail="connection refused")
BROKEN = Probe(ready=False, looks_stopped=False, detail="answers 401 Unauthorized")
READY = Probe(ready=True, looks_stopped=False, detail="answers")

SERVICE_OFF = {"llm", "draining_post", "acquiring", "stopping_services", "releasing", "error"}
LLM_OFF = {"acquiring", "starting_services", "audio", "draining", "stopping_services", "releasing"}


@pytest.mark.parametrize("phase", Phase)
def test_a_stopped_model_service_is_off_where_it_should_be(phase):
    found = finding("service whisper", Side.SERVICE, REFUSED, view_of(phase))
    if phase in SERVICE_OFF:
        assert (found.severity, found.silenced_by) == (Severity.OFF, "gpu sharing")
        assert "until the next audio window" in found.text
    elif phase is Phase.STARTING_SERVICES:
        assert found.severity is Severity.WARN
    else:
        assert found.severity is Severity.FAIL


@pytest.mark.parametrize("phase", Phase)
def test_a_stopped_language_model_is_off_while_voxint_has_the_gpu(phase):
    found = finding("llm endpoint llm", Side.LANGUAGE_MODEL, REFUSED, view_of(phase))
    assert found.severity is (Severity.OFF if phase in LLM_OFF else Severity.FAIL)


@pytest.mark.parametrize(("side", "phase"), list(product(Side, Phase)))
def test_whatever_does_not_look_stopped_is_a_failure_in_every_phase(side, phase):
    found = finding("x", side, BROKEN, view_of(phase))
    assert (found.severity, found.silenced_by) == (Severity.FAIL, None)


@pytest.mark.parametrize(("side", "phase"), list(product(Side, Phase)))
def test_without_the_phase_task_nothing_is_off_on_purpose(side, phase):
    silent = view_of(phase, ticked=timedelta(seconds=120, microseconds=1))
    assert finding("x", side, REFUSED, silent).severity is Severity.FAIL
    assert "does not run" in finding("x", side, REFUSED, silent).text
    running = view_of(phase, ticked=timedelta(seconds=120))
    expected = SERVICE_OFF if side is Side.SERVICE else LLM_OFF
    assert (finding("x", side, REFUSED, running).severity is Severity.OFF) is (phase in expected)


@pytest.mark.parametrize("side", Side)
def test_without_a_row_a_database_or_sharing_nothing_is_off_on_purpose(side):
    assert finding("x", side, REFUSED, None).severity is Severity.FAIL
    nothing = finding("x", side, REFUSED, view_of(None))
    assert nothing.severity is Severity.FAIL
    assert "No phase is recorded yet" in nothing.text
    for phase in Phase:
        assert finding("x", side, REFUSED, view_of(phase, policy=Policy(enabled=False))).severity is Severity.FAIL


def test_what_answers_is_fine_where_it_should_and_a_warning_where_it_should_not():
    assert finding("x", Side.SERVICE, READY, view_of(Phase.AUDIO)).severity is Severity.OK
    assert finding("x", Side.SERVICE, READY, view_of(Phase.LLM)).severity is Severity.WARN
    assert finding("x", Side.LANGUAGE_MODEL, READY, view_of(Phase.LLM)).severity is Severity.OK
    assert finding("x", Side.LANGUAGE_MODEL, READY, view_of(Phase.AUDIO)).severity is Severity.WARN
    assert finding("x", Side.LANGUAGE_MODEL, READY, view_of(Phase.RELEASING)).severity is Severity.OK
    assert finding("x", Side.SERVICE, READY, view_of(Phase.LLM, policy=Policy(enabled=False))).severity is Severity.OK


def test_only_a_failure_makes_doctor_say_no():
    every = [Finding("x", severity, "") for severity in Severity]
    assert failed(every)
    assert not failed([found for found in every if found.severity is not Severity.FAIL])
    assert document(every[:1]) == {
        "ok": True,
        "checks": [{"name": "x", "severity": "ok", "text": "", "silenced_by": None, "runs_on": None}],
    }


@pytest.mark.parametrize(
    ("free", "total", "severity"),
    [
        (500 * GIB, 1000 * GIB, "ok"),
        (10 * GIB, 1000 * GIB, "ok"),
        (10 * GIB - 1, 1000 * GIB, "warn"),
        (GIB, 1000 * GIB, "warn"),
        (GIB - 1, 1000 * GIB, "fail"),
        (9_000_000, 10_000_000, "ok"),
        (900_000, 10_000_000, "warn"),
        (400_000, 10_000_000, "fail"),
    ],
)
def test_how_much_room_is_enough(free, total, severity):
    assert room(free, total) == severity


def test_sizes():
    assert (size(3 * GIB // 2), size(5 << 20)) == ("1.5 GiB", "5 MiB")
