"""Sharing was turned off while the row still holds something: each surface says it, and nobody is called."""

from __future__ import annotations

import json
import logging

import pytest
from doctor_world import environment
from phase_world import FakeBroker
from stored_phase import store_phase

from voxint.alerts import watch
from voxint.cli.main import main
from voxint.console.metrics import families, render
from voxint.console.views import runs_page
from voxint.doctor import gpu
from voxint.doctor.checks import surroundings
from voxint.gpu_phase import totals
from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.status import look
from voxint.settings import load_settings
from voxint.wiring import make

SAID = "the lease may still be held and the language model stopped"
BACK = "set GPU_PHASE_ENABLED=true again, run `voxint gpu-phase release`"


@pytest.fixture
def off(tmp_path, database_url, redis_url, monkeypatch):
    environ = environment(tmp_path, database_url, redis_url, GPU_PHASE_ENABLED="false")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    parts = make(load_settings(environ))
    parts.__dict__["broker"] = FakeBroker()
    yield parts
    parts.close()


@pytest.mark.parametrize("phase", [phase.value for phase in Phase if phase is not Phase.LLM])
def test_status_doctor_requests_banner_metrics_and_log_say_it(off, engine, phase, capsys, caplog):
    store_phase(engine, phase)

    assert main(["gpu-phase", "status"]) == 0
    out, err = capsys.readouterr()
    assert "GPU sharing is off" in out
    assert SAID in err
    assert BACK in err
    for kind in ("audio-now", "release"):
        assert main(["gpu-phase", kind]) == 1
        assert SAID in capsys.readouterr().err
    assert main(["gpu-phase", "status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["enabled"], document["phase"]) == (False, phase)

    (finding,), (asked,) = gpu.sharing(surroundings(off)), gpu.broker(surroundings(off))
    assert (finding.severity, asked.severity) == ("warn", "off")
    assert SAID in finding.text

    view = look(off.phase_store, off.settings)
    (banner,) = runs_page(view, [], None, {}, None).notices
    assert (banner.level, banner.code) == ("alert", "leftover")
    assert SAID in banner.text
    assert 'voxint_alert_active{code="leftover"} 1' in render(families(view, totals.steps(off.engine), None))

    with caplog.at_level(logging.ERROR):
        watch.check(off)
    assert f"alert leftover: {banner.text}" in caplog.text
    assert off.broker.calls == []


def test_and_a_row_in_llm_holds_nothing(off, engine, capsys, caplog):
    store_phase(engine, "llm")
    assert main(["gpu-phase", "status"]) == 0
    out, err = capsys.readouterr()
    assert (err, out.startswith("GPU sharing is off")) == ("", True)
    view = look(off.phase_store, off.settings)
    assert runs_page(view, [], None, {}, None).notices == ()
    assert 'voxint_alert_active{code="leftover"} 0' in render(families(view, (), None))
    with caplog.at_level(logging.ERROR):
        watch.check(off)
    assert "alert" not in caplog.text
