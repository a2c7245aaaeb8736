"""The metrics as text: each line's form, the counters' sums, and that dashboard and rules ask for what is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from phase_views import NOON, state_of, view_of

from voxint.console.metrics import ALERT_CODES, families, render
from voxint.gpu_phase.model import Cause, Phase
from voxint.gpu_phase.policy import Policy
from voxint.gpu_phase.totals import Steps
from voxint.gpu_phase.wording.notices import Level, notices
from voxint.work.meter import TickCounts

ROOT = Path(__file__).parents[3]
STEPS = (
    Steps("llm", "draining_post", "work_waits", 3, 1800.5),
    Steps("llm", "stopping_services", "service_runs", 1, 20),
    Steps("acquiring", "llm", "refused", 2, 4.25),
)
TICKS = TickCounts({"saved": 7, "first": 1, "busy": 0, "overtaken": 0}, 0.5, 0.041)
SAMPLE = re.compile(r'([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?\d+(\.\d+)?')


def lines(view, steps=STEPS, ticks=TICKS):
    return render(families(view, steps, ticks)).splitlines()


def test_every_line_has_its_form_and_every_metric_its_head():
    told = lines(view_of(Phase.AUDIO, gpu=(3, 1)))
    heads = [line.split()[2] for line in told if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    samples = [line for line in told if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert {re.split(r"[ {]", line)[0] for line in samples} == set(heads)


def test_the_phase_the_lanes_and_the_sums():
    told = lines(view_of(Phase.LLM, gpu=(3, 0), post=(0, 2)))
    assert 'voxint_gpu_phase{phase="llm"} 1' in told
    assert sum(line.endswith(" 1") for line in told if line.startswith("voxint_gpu_phase{")) == 1
    assert 'voxint_lane_waiting{lane="gpu"} 3' in told
    assert 'voxint_lane_running{lane="post"} 2' in told
    assert 'voxint_gpu_phase_seconds_total{phase="llm"} 2120.5' in told
    assert 'voxint_gpu_phase_seconds_total{phase="audio"} 0' in told
    assert 'voxint_gpu_phase_switches_total{from="acquiring",to="llm",cause="refused"} 2' in told
    assert "voxint_gpu_phase_failed_steps_total 2" in told
    assert "voxint_gpu_phase_tick_age_seconds 10" in told
    assert "voxint_gpu_phase_last_tick_seconds 0.041" in told
    assert 'voxint_gpu_phase_ticks_total{outcome="saved"} 7' in told


def test_without_a_row_or_redis_the_rest_is_there():
    told = lines(view_of(None), ticks=None)
    assert 'voxint_gpu_phase{phase="none"} 1' in told
    assert not [line for line in told if "tick_age" in line or "ticks_total" in line]


def test_each_alert_code_is_one_that_the_notices_have():
    views = [
        view_of(Phase.ERROR),
        view_of(Phase.LLM, ticked=timedelta(hours=1)),
        view_of(Phase.AUDIO, policy=Policy(enabled=False)),
        replace(
            view_of(Phase.LLM, state=state_of(Phase.LLM, note="the language model does not answer: llm is away")),
            llm_silent_since=NOON - timedelta(hours=1),
        ),
    ]
    raised = {notice.code for view in views for notice in notices(view, None) if notice.level is Level.ALERT}
    assert raised == set(ALERT_CODES)
    for view in views:
        assert sum(line.endswith(" 1") for line in lines(view) if line.startswith("voxint_alert_active")) == 1


def test_dashboard_and_rules_ask_for_metrics_labels_and_codes_that_are_there():
    told = "\n".join(lines(view_of(Phase.LLM)))
    there = set(re.findall(r"^# TYPE (\S+)", told, re.MULTILINE))
    dashboard = (ROOT / "examples/monitoring/grafana-dashboard.json").read_text()
    rules = (ROOT / "examples/monitoring/prometheus-rules.yaml").read_text()
    asked = set(re.findall(r"voxint_[a-z_]+", dashboard + rules))
    assert asked - there == set()
    assert set(re.findall(r'code="(\w+)"', rules)) == set(ALERT_CODES)
    panels = json.loads(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for label in set(re.findall(r"\{\{(\w+)\}\}", dashboard)):
        assert f'{label}="' in told


def test_every_cause_of_a_failure_is_a_cause():
    from voxint.gpu_phase.totals import FAILURES

    assert set(Cause) >= FAILURES
    assert Cause.GRANTED not in FAILURES
