"""The page of the broker's configuration is what the code says, and every key has its sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]


def generator():
    spec = importlib.util.spec_from_file_location("broker_settings", ROOT / "scripts" / "broker_settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_written_page_is_what_the_code_says():
    made = generator()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run make docs"


def test_every_key_has_a_sentence():
    made = generator()
    for heading, name, part in made.TABLES:
        for row in made.rows(part, name):
            assert not row.endswith("|  |"), (heading, row)


def test_every_kind_is_on_the_page():
    made = generator()
    shown = {part for _, _, part in made.TABLES}
    parts = [made.config.ConfigPart] if hasattr(made.config, "ConfigPart") else []
    kinds = set()
    while parts:
        below = parts.pop().__subclasses__()
        parts += below
        kinds |= {part for part in below if "kind" in part.model_fields}
    assert kinds
    assert kinds <= shown, kinds - shown
