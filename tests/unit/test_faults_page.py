"""The page of faults: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = [1, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 15, 17, 18, 22, 23, 24, 26, 27, 29, 30, 31, 32, 34, 37, 38, 39, 41, 42]
CASES += [43, 44, 46, 47, 48, 49, 50, 52, 53, 55, 57, 59, 61, 70, 93]


def test_every_test_that_the_page_names_is_there():
    there = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in [path.stem, *re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/faults.md").read_text()))
    assert len(named) > 20
    assert named <= there, sorted(named - there)


def test_no_case_of_work_the_phase_machine_the_database_and_the_brokers_client_is_left_out():
    page = (ROOT / "docs/reference/faults.md").read_text()
    section = page.split("## Work, the phase machine, the database and the broker's client")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    assert [int(re.match(r"\| (\d+) ", row)[1]) for row in rows] == CASES
    assert all(re.search(r"`test_\w+`", row.split(" | ")[-1]) for row in rows)
