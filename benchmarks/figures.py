"""What was measured, as rows: kept in benchmarks/results.json, and compared with what is kept there."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
RATIO = "ratio"
WORSE_BY = 2.0
"""A ratio that is worse than the kept one by more than this factor fails `make bench-quick`."""

Bound = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `limit` is what it should be, `bound` which side of it; both are None where there is no limit."""

    name: str
    value: float
    unit: str
    n: int
    limit: float | None = None
    bound: Bound | None = None
    load: float = 0.0
    """The machine's load average (one minute) when it was measured."""
    commit: str = ""
    date: str = ""

    @property
    def good(self) -> bool | None:
        """Whether the limit is kept; None without one."""
        if self.limit is None or self.bound is None:
            return None
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit


def row(name: str, value: float, unit: str, n: int, limit: float | None = None, *, bound: Bound | None = None) -> Row:
    """A row of this moment, on this machine, of this commit."""
    if limit is not None and bound is None:
        bound = "at most"
    digits = 4 if abs(value) < 10 else 1
    return Row(
        name,
        round(value, digits),
        unit,
        n,
        limit,
        bound,
        round(os.getloadavg()[0], 1),
        commit(),
        datetime.now(UTC).date().isoformat(),
    )


def commit() -> str:
    """The commit that is checked out, with a + where files differ from it; empty outside a checkout."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=10"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()


def load(path: Path = RESULTS) -> list[Row]:
    """The rows of a file; none where there is no file."""
    if not path.exists():
        return []
    return [Row(**_known(each)) for each in json.loads(path.read_text(encoding="utf-8"))]


def _known(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in Row.__dataclass_fields__ if name in document}


def save(rows: Iterable[Row], path: Path = RESULTS) -> None:
    """Write rows, as JSON that a person can read a change of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(" " + json.dumps(asdict(each)) for each in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def merged(kept: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """What was kept, with each row that was measured anew in its old place, and rows that are new at the end."""
    by_name = {each.name: each for each in new}
    known = {each.name for each in kept}
    return [by_name.get(each.name, each) for each in kept] + [each for each in new if each.name not in known]


def worsened(kept: Sequence[Row], new: Sequence[Row]) -> list[str]:
    """The ratios that are worse than twice the kept one, in words. What is not a ratio says more of the machine.

    A ratio that nothing is kept of is one of these too: it would never fail.
    """
    by_name = {each.name: each for each in kept}
    found = []
    for each in new:
        if each.unit != RATIO:
            continue
        before = by_name.get(each.name)
        if before is None:
            found.append(f"{each.name}: {each.value:g}, and no such row is kept in {RESULTS.name}")
        elif _factor(each, before) > WORSE_BY:
            found.append(
                f"{each.name}: {each.value:g}, where {before.value:g} is kept: worse by {_factor(each, before):.1f}"
            )
    return found


def _factor(now: Row, before: Row) -> float:
    """How many times worse it is than before."""
    better, worse = (before.value, now.value) if now.bound != "at least" else (now.value, before.value)
    if better <= 0:
        return 1.0 if worse <= 0 else float("inf")
    return worse / better


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(round(share * (len(ordered) - 1)), len(ordered) - 1)]


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(values)
