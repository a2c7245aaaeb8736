"""docs/reference/services.md says what the compose files say."""

from __future__ import annotations

import importlib.util

import compose_render
import pytest
from compose_render import ROOT


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("services_page", ROOT / "scripts" / "services_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_files_make_of_it(writer):
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "out of date: run make docs"


def test_every_compose_file_stands_on_it(writer):
    for path in ROOT.glob("compose*.yaml"):
        assert f"`{path.name}`" in writer.page() or f"-f {path.name}" in writer.page()


def test_a_changed_overlay_makes_another_page(writer, monkeypatch):
    before = compose_render.load

    def changed(name):
        document = before(name)
        if name == "compose.gpu-phase.yaml":
            document = {**document, "services": {**document["services"], "one-more": {"image": "more:1"}}}
        return document

    monkeypatch.setattr(compose_render, "load", changed)
    assert "| `one-more` | a new service |" in writer.page()
    assert writer.page() != writer.PAGE.read_text(encoding="utf-8")
