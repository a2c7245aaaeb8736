"""The metrics as text: each line's form, the counters' sums, and that dashboard and rules ask for what is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from phase_draws import REPEATABLE, ticks
from phase_views import NOON, state_of, view_of

from voxint.console.metrics import ALERT_CODES, families, render
from voxint.gpu_phase.decide import decide
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


SELECTOR = re.compile(r"(voxint_[a-z_]+)(?:\{([^}]*)\})?")
OVER_TIME = re.compile(r"(?:rate|increase)\((voxint_[a-z_]+)")


def expressions():
    dashboard = json.loads((ROOT / "examples/monitoring/grafana-dashboard.json").read_text())
    rules = yaml.safe_load((ROOT / "examples/monitoring/prometheus-rules.yaml").read_text())
    found = [(target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel["targets"]]
    return found + [(rule["expr"], "") for group in rules["groups"] for rule in group["rules"]]


def faults(expression, legend, told):
    """What an expression asks for that /metrics does not give: names, labels, values, and rates of what is no counter."""
    kinds = dict(line.split()[2:4] for line in told if line.startswith("# TYPE"))
    samples = [line for line in told if not line.startswith("#")]
    found = []
    for name, labels in SELECTOR.findall(expression):
        there = [line for line in samples if re.match(rf"{name}[{{ ]", line)]
        parts = [part.strip() for part in labels.split(",") if part]
        found += [f"no {name} has {part}" for part in parts if not any(part in line for line in there)]
        wanted = re.findall(r"\{\{(\w+)\}\}", legend) + re.findall(r"by \((\w+)\)", expression)
        found += [f"no {name} has the label {label}" for label in wanted if not any(f'{label}="' in x for x in there)]
        found += [f"there is no {name}"] if not there else []
    return found + [f"{name} is no counter" for name in OVER_TIME.findall(expression) if kinds.get(name) != "counter"]


def test_dashboard_and_rules_ask_for_what_is_there():
    told = lines(view_of(Phase.LLM))
    asked = expressions()
    assert len(asked) >= 15
    assert [fault for expression, legend in asked for fault in faults(expression, legend, told)] == []
    codes = {code for expression, _ in asked for code in re.findall(r'code="(\w+)"', expression)}
    assert codes == set(ALERT_CODES)


@pytest.mark.parametrize(
    ("expression", "legend", "fault"),
    [
        ("voxint_lane_wating", "", "there is no voxint_lane_wating"),
        ('voxint_alert_active{code="eror"}', "", 'no voxint_alert_active has code="eror"'),
        ("voxint_lane_waiting", "{{line}}", "no voxint_lane_waiting has the label line"),
        (
            "sum by (reason) (voxint_gpu_phase_switches_total)",
            "",
            "no voxint_gpu_phase_switches_total has the label reason",
        ),
        ("rate(voxint_lane_waiting[1h])", "", "voxint_lane_waiting is no counter"),
    ],
)
def test_and_what_is_not_there_is_found(expression, legend, fault):
    assert faults(expression, legend, lines(view_of(Phase.LLM))) == [fault]


def test_the_dashboard_s_panels_lie_beside_each_other():
    panels = json.loads((ROOT / "examples/monitoring/grafana-dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_what_could_not_be_asked_is_a_metric():
    blind = state_of(Phase.LLM, note="could not inspect whisper")
    assert "voxint_gpu_phase_blind 1" in lines(view_of(Phase.LLM, state=blind))
    assert "voxint_gpu_phase_blind 0" in lines(view_of(Phase.LLM))


def test_every_cause_of_a_failure_is_a_cause():
    from voxint.gpu_phase.totals import FAILURES

    assert set(Cause) >= FAILURES
    assert Cause.GRANTED not in FAILURES


@pytest.mark.parametrize("phase", Phase)
def test_every_step_that_counts_as_a_failure_is_one_in_the_metrics(phase):
    from voxint.gpu_phase.totals import FAILURES

    @settings(REPEATABLE, max_examples=100)
    @given(ticks(phase))
    def check(drawn):
        step = decide(*drawn)
        if step.moved and step.state.failures > step.before.failures:
            assert step.cause in FAILURES

    check()
    assert Cause.WRONG_DEVICE in FAILURES  # seldom drawn
