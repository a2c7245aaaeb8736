"""What `make bench-quick` compares, the file of results, and the page that is made from it."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def figures():
    return _module("figures")


@pytest.fixture(scope="module")
def page():
    return _module("page")


@pytest.fixture(scope="module")
def quick():
    return _module("quick")


def _module(name):
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before


def made(figures, value, *, name="a over b", unit="ratio", bound="at most", limit=1.2):
    return figures.Row(name, value, unit, 3, limit, bound)


def test_a_ratio_that_is_worse_than_twice_the_kept_one_is_found(figures):
    kept = [made(figures, 0.5)]
    assert figures.worsened(kept, [made(figures, 1.0)]) == []
    (said,) = figures.worsened(kept, [made(figures, 1.01)])
    assert said == "a over b: 1.01, where 0.5 is kept: worse by 2.0"


def test_where_more_is_better_half_of_it_is_the_limit(figures):
    kept = [made(figures, 0.8, bound="at least", limit=0.5)]
    assert figures.worsened(kept, [made(figures, 0.4, bound="at least")]) == []
    assert figures.worsened(kept, [made(figures, 7.0, bound="at least")]) == []
    assert len(figures.worsened(kept, [made(figures, 0.39, bound="at least")])) == 1


def test_a_better_ratio_and_what_is_no_ratio_pass(figures):
    kept = [made(figures, 0.5), made(figures, 3.0, name="a", unit="ms")]
    assert figures.worsened(kept, [made(figures, 0.1), made(figures, 3000.0, name="a", unit="ms")]) == []


def test_a_ratio_without_a_kept_one_would_never_fail_and_is_found(figures):
    (said,) = figures.worsened([], [made(figures, 0.5)])
    assert "no such row is kept" in said


@pytest.mark.parametrize(("before", "now", "found"), [(0.0, 0.0, 0), (0.0, 0.1, 1), (0.1, 0.0, 0)])
def test_nothing_is_divided_by_nothing(figures, before, now, found):
    assert len(figures.worsened([made(figures, before)], [made(figures, now)])) == found


def test_whether_a_limit_is_kept(figures):
    assert made(figures, 1.2).good
    assert not made(figures, 1.21).good
    assert made(figures, 0.9, bound="at least", limit=0.9).good
    assert not made(figures, 0.89, bound="at least", limit=0.9).good
    assert made(figures, 1.0, bound=None, limit=None).good is None


def test_what_is_measured_anew_takes_its_old_place(figures):
    kept = [made(figures, 1.0, name="one"), made(figures, 2.0, name="two")]
    new = [made(figures, 9.0, name="three"), made(figures, 5.0, name="one")]
    assert [(row.name, row.value) for row in figures.merged(kept, new)] == [("one", 5.0), ("two", 2.0), ("three", 9.0)]


def test_the_file_gives_back_what_was_saved(figures, tmp_path):
    rows = [made(figures, 1.0), replace(made(figures, 2.5, name="other"), commit="abc", date="2026-11-30", load=0.4)]
    figures.save(rows, tmp_path / "results.json")
    assert figures.load(tmp_path / "results.json") == rows
    assert figures.load(tmp_path / "none.json") == []


def test_the_kept_results_have_every_column_and_each_name_once(figures):
    rows = json.loads(figures.RESULTS.read_text(encoding="utf-8"))
    assert {"name", "value", "limit", "unit", "n", "commit", "date"} <= set(rows[0])
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))


def test_every_ratio_that_has_become_twice_as_bad_is_found_among_the_kept_ones(figures):
    """The twin of a quick run that finds nothing: each kept ratio, worsened, must be found."""
    kept = figures.load()
    ratios = [row for row in kept if row.unit == figures.RATIO]
    assert figures.worsened(kept, kept) == []
    for row in ratios:
        worse = row.value / 2.1 if row.bound == "at least" else row.value * 2.1
        assert len(figures.worsened(kept, [replace(row, value=worse)])) == 1, row.name


def test_the_page_is_made_of_the_results(figures, page):
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.TEXT.read_text(encoding="utf-8"), figures.load())


def test_a_figure_without_a_place_is_refused_and_a_place_without_a_figure_says_so(figures, page):
    rows = [made(figures, 1.0, name="gate: one")]
    text = "# Page\n\n<!-- rows: gate -->\n"
    assert "| gate: one | 1 | ratio | at most 1.2 | yes | 3 |" in page.page(text, rows)
    with pytest.raises(ValueError, match="these figures have no place"):
        page.page(text, [*rows, made(figures, 1.0, name="other")])
    assert page.page(text + "\n<!-- rows: tick -->\n", rows).endswith("\n*Not measured yet.*\n")


def test_numbers_are_written_as_people_read_them(page):
    assert [page._number(value) for value in (0.0, 1.2, 0.4567, 10.0, 1234.56, 0.0004)] == [
        "0",
        "1.2",
        "0.457",
        "10",
        "1,234.6",
        "0",
    ]


def parts(figures, *values):
    """A part that gives these values, one after the other, and says how often it was asked."""
    left = list(values)
    asked = []

    def measure():
        asked.append(left[0])
        value = left.pop(0)
        return [] if value is None else [made(figures, value)]

    return measure, asked


def test_one_bad_moment_is_measured_again_and_does_not_fail(figures, quick):
    measure, asked = parts(figures, 3.0, 3.0, 0.6)
    assert quick.worse({"part": measure}, [made(figures, 0.5)]) == []
    assert asked == [3.0, 3.0, 0.6]


def test_a_good_one_is_measured_once(figures, quick):
    measure, asked = parts(figures, 0.6, 3.0)
    assert quick.worse({"part": measure}, [made(figures, 0.5)]) == []
    assert asked == [0.6]


def test_a_ratio_that_stays_worse_fails_and_the_others_are_measured_all_the_same(figures, quick):
    bad, asked = parts(figures, 3.0, 3.0, 3.0)
    good, _ = parts(figures, 0.5)
    assert len(quick.worse({"bad": bad, "good": good}, [made(figures, 0.5)])) == 1
    assert asked == [3.0, 3.0, 3.0]


def test_what_could_not_be_measured_fails(figures, quick):
    measure, _ = parts(figures, None, None, None)
    assert quick.worse({"part": measure}, [made(figures, 0.5)]) == ["part: could not be measured"]
