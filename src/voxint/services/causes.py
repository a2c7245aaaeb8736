"""What lies behind an error: libraries wrap one in another, and only the chain tells what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it came from, and so on, each once. Groups, and errors given as an argument, are opened."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inside = (argument for argument in current.args if isinstance(argument, BaseException))
        waiting += [current.__cause__, current.__context__, *getattr(current, "exceptions", ()), *inside]
