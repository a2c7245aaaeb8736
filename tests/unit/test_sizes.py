"""The size budgets: code is counted as code alone, and what outgrows its budget is named."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sizes():
    spec = importlib.util.spec_from_file_location("sizes_script", ROOT / "scripts" / "sizes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_comments_docstrings_and_blank_lines_are_no_code(sizes, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        '"""Doc.\n\nMore."""\n\n# note\nx = 1  # said\n\n\ndef f():\n    """Doc."""\n    return (\n        x\n    )\n'
    )
    assert sizes.code_lines(file) == 5


def test_every_package_has_a_budget_and_keeps_it(sizes):
    packages = sizes.measured()
    assert set(packages) == set(sizes.BUDGETS)
    assert sizes.problems(packages, {}) == []


def test_what_is_too_big_is_named(sizes):
    big = sizes.Size(lines=10**6, modules=1, longest=10**6, longest_module="voxint/db/all.py")
    found = sizes.problems({"voxint.db": big, "voxint.new": sizes.Size(lines=1)}, {"voxint": 10**9})
    assert [line.partition(":")[0] for line in found] == ["voxint.db", "voxint/db/all.py", "voxint.new", "wheel voxint"]
