"""docs/benchmarks.md from benchmarks/page.md and benchmarks/results.json: `python benchmarks/page.py`.

A line `<!-- rows: WORDS -->` becomes the table of the figures whose names begin with WORDS.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from figures import Row

HERE = Path(__file__).parent
TEXT = HERE / "page.md"
PAGE = HERE.parent / "docs" / "benchmarks.md"
PLACE = re.compile(r"^<!-- rows: (.+) -->$", re.MULTILINE)
HEAD = "| what | value | unit | limit | kept | n | load | commit | date |\n|---|---|---|---|---|---|---|---|---|"
NOTHING = "*Not measured yet.*"
KEPT = {True: "yes", False: "**no**", None: ""}


def table(rows: Sequence[Row]) -> str:
    """Rows as Markdown."""
    return "\n".join([HEAD, *(_line(each) for each in rows)])


def _line(each: Row) -> str:
    limit = "" if each.limit is None else f"{each.bound} {each.limit:g}"
    cells = (
        each.name,
        _number(each.value),
        each.unit,
        limit,
        KEPT[each.good],
        each.n,
        each.load,
        each.commit,
        each.date,
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _number(value: float) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:,.1f}".removesuffix(".0")


def page(text: str, rows: Sequence[Row]) -> str:
    """The page.

    Raises:
        ValueError: a figure without a place.
    """
    placed: set[str] = set()

    def filled(match: re.Match[str]) -> str:
        chosen = [each for each in rows if each.name.startswith(match[1])]
        placed.update(each.name for each in chosen)
        return table(chosen) if chosen else NOTHING

    made = PLACE.sub(filled, text)
    left = [each.name for each in rows if each.name not in placed]
    if left:
        raise ValueError(f"these figures have no place in {TEXT.name}: {', '.join(left)}")
    return made


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(TEXT.read_text(encoding="utf-8"), figures.load()), encoding="utf-8")


if __name__ == "__main__":
    write()
