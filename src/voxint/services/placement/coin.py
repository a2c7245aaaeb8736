"""The order in which a set of provider names iterates, for a given hash seed: drawn once a process, here made again.

A program that hands a runtime `list(set(names) - {...})` as a list of priorities lets the hash seed choose the device.
The seed is fixed when an interpreter starts, so each draw needs a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AGREEING_PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest CPython minor version that were seen to agree on all of seeds 0 to 63. 3.10 and older do not."""

_DRAW = "import sys; part = sys.argv.index('--'); print(*set(sys.argv[1:part]) - set(sys.argv[part + 1:]), sep='\\n')"
_LIMIT_SECONDS = 30


def drawn_order(
    providers: Sequence[str], left_out: Sequence[str], seed: int, python: str = sys.executable
) -> tuple[str, ...]:
    """The names that are left, in the order that an interpreter with this hash seed iterates them.

    Args:
        providers: the runtime's own list, in its order: what a set holds may depend on how it was filled.
        left_out: names that the program takes away from the set.
        seed: PYTHONHASHSEED, 0 to 4294967295.
        python: the interpreter to ask.

    Raises:
        OSError: the interpreter cannot be started.
        subprocess.SubprocessError: it failed, or did not answer.
    """
    drawn = subprocess.run(
        [python, "-S", "-c", _DRAW, *providers, "--", *left_out],
        env={"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_SECONDS,
    )
    return tuple(drawn.stdout.split())


def firsts(
    providers: Sequence[str], left_out: Sequence[str], seeds: Iterable[int], python: str = sys.executable
) -> dict[int, str]:
    """The provider that each seed puts first. Raises what `drawn_order` raises."""
    return {seed: drawn_order(providers, left_out, seed, python)[0] for seed in seeds}
