"""The page of faults: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_is_there():
    there = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in [path.stem, *re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/faults.md").read_text()))
    assert len(named) > 20
    assert named <= there, sorted(named - there)
