"""The one rule by which scripts/mutants.py calls a change none: SQL's words have no case, its values have."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants.py"


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_script"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants_script"]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("\"UPDATE work_item SET state = 'done' WHERE id = :id\"", "\"update work_item set state = 'done' where id = :id\"", True),
        ('" ORDER BY id LIMIT 1"', '" order by id limit 1"', True),
        ("\"UPDATE work_item SET state = 'done'\"", "\"UPDATE WORK_ITEM SET STATE = 'DONE'\"", False),
        ('"SELECT 1 WHERE id = :id"', '"SELECT 1 WHERE id = :ID"', False),
        ('"SELECT 1 WHERE a AND b"', '"SELECT 1 WHERE a OR b"', False),
        ('"SELECT 1 FROM run"', '"XXSELECT 1 FROM runXX"', False),
        ('"not_now"', '"NOT_NOW"', False),
        ('f"SELECT 1 WHERE {condition}"', 'f"SELECT 1 WHERE {CONDITION}"', False),
    ],
)  # fmt: skip
def test_only_the_case_of_sqls_words_is_no_change(mutants, before, after, same):
    assert bool(mutants.same_statement(f"-    {before}\n+    {after}")) is same
