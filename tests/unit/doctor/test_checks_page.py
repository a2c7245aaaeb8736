"""The page of doctor's checks: it has every check, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from voxint.doctor.checks import CHECKS

ROOT = Path(__file__).parents[3]
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/reference/doctor.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| check")
]


def test_every_check_has_a_row_and_every_row_is_a_check():
    assert {row[0] for row in TABLE} == {"settings"} | {name for name, _ in CHECKS}


def test_every_row_names_tests_and_each_of_them_is_there():
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for row in TABLE:
        named = set(re.findall(r"`(test_\w+)`", row[3]))
        assert named, row
        assert named <= there, row


def test_every_line_that_a_check_prints_is_in_the_table():
    """Names are literals, or begin with one."""
    source = "".join(path.read_text() for path in (ROOT / "src/voxint/doctor").glob("*.py"))
    printed = set(re.findall(r'Finding\(\s*f?"([a-z ]+)', source)) | set(
        re.findall(r'^_NAME = "([a-z ]+)"', source, re.MULTILINE)
    )
    assert len(printed) >= 12
    told = " ".join(row[1] for row in TABLE)
    assert {name for name in printed if f"`{name.strip()}" not in told and f"`{name}" not in told} == set()
