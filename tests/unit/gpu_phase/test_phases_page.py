"""docs/reference/phases.md says what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from voxint.gpu_phase import plan
from voxint.gpu_phase.model import EDGES, Phase

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("phases_page", ROOT / "scripts" / "phases_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_makes_of_it(writer):
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "out of date: run make docs"


def test_the_page_names_every_phase_step_and_cause(writer):
    text = writer.page()
    for phase in Phase:
        assert f"| `{phase.value}` |" in text
    for (start, end), causes in EDGES.items():
        assert f"{start.value} --> {end.value}: " in text
        assert all(cause.value in text for cause in causes)


def test_a_changed_machine_makes_another_page(writer, monkeypatch):
    monkeypatch.setitem(plan.CALLS, Phase.DRAINING_POST, (plan.Call.STATUS,))
    assert writer.page() != writer.PAGE.read_text(encoding="utf-8")
