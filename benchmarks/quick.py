"""Whether a ratio has become worse: measured again before it counts, for a busy moment of the machine is no regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from figures import Row

TRIES = 3
"""A ratio counts as worse when it was so many times in a row."""


def worse(measure: Mapping[str, Callable[[], list[Row]]], kept: Sequence[Row], tries: int = TRIES) -> list[str]:
    """Measure each part until its ratios are good, at most so many times: what is worse than twice the kept, in words.

    A part that gives no rows could not be measured, and is found as well.
    """
    found = []
    for name, part in measure.items():
        said: list[str] = []
        for _ in range(tries):
            rows = part()
            said = figures.worsened(kept, rows) if rows else [f"{name}: could not be measured"]
            if not said:
                break
            print(*said, sep="\n", flush=True)
        found += said
    return found
