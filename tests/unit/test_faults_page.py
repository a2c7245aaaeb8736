"""The page of faults: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORK = "1 3 4 5 7 8 9 10 11 13 14 15 17 18 22 23 24 26 27 29 30 31 32 34 37 38 39 41 42"
WORK += " 43 44 46 47 48 49 50 52 53 55 57 59 61 70 93"
RECORDINGS = "8 10 17 20 22 30 43 44 72 73 74 76 78 79 80 81 82 84 86 87 89 90 92 92b 93 94 95 97 99 100 103 104"
CASES = {
    "Work, the phase machine, the database and the broker's client": WORK,
    "Recordings: pipeline, media, language model, exports": RECORDINGS,
    "The console and its API": "106 107 108 109",
}


def test_every_test_that_the_page_names_is_there():
    there = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in [path.stem, *re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/faults.md").read_text()))
    assert len(named) > 20
    assert named <= there, sorted(named - there)


@pytest.mark.parametrize("title", CASES)
def test_no_case_of_a_section_is_left_out(title):
    page = (ROOT / "docs/reference/faults.md").read_text()
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    found = [re.match(r"\| (\d+b?) ", row)[1] for row in rows]
    assert set(CASES[title].split()) <= set(found)
    assert all(re.search(r"`test_\w+`", row.split(" | ")[-1]) for row in rows)
