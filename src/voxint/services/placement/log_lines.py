"""Lines of a container's log: when each was printed, and in which order. Pure.

Docker gives a log in several shapes: with its own timestamps (`docker logs -t`), without, with compose's prefix, or as
the JSON lines of its file. A program adds a timestamp of its own, or none.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = re.compile(r"^[\w.-]+\s+\| ?")
_STAMP = re.compile(
    r"^\s*(?P<date>\d{4}-\d{2}-\d{2})[T ](?P<time>\d{2}:\d{2}:\d{2})(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without what the engine put in front of it. `at` is aware and UTC; None where nothing says it."""

    text: str
    at: datetime | None = None


def read_line(raw: str) -> Line:
    """One line of any of the shapes. A time without a zone is taken as UTC, which is what containers have."""
    text = raw.rstrip("\r\n")
    if text.startswith("{"):
        found = _json_line(text)
        if found is not None:
            return found
    text = _PREFIX.sub("", text)
    match = _STAMP.match(text)
    if match is None:
        return Line(text)
    return Line(text[match.end() :].lstrip(" :"), _moment(match))


def in_order(lines: Iterable[Line], opens: re.Pattern[str]) -> list[Line]:
    """The lines by time, as far as they carry one; several files in any order, or a shuffled one, come out sorted.

    Args:
        lines: in the order in which they were read.
        opens: matches the line with which a process begins.

    A line without a time belongs behind the line before it; the line that opens a process, in front of the one that
    follows.
    """
    given = list(lines)
    moments = [line.at for line in given]
    known: datetime | None = None
    for number, line in enumerate(given):
        if line.at is not None:
            known = line.at
        elif not opens.search(line.text):
            moments[number] = known
    following: datetime | None = None
    for number in reversed(range(len(given))):
        if given[number].at is not None:
            following = given[number].at
        elif opens.search(given[number].text):
            moments[number] = following
    first = datetime.min.replace(tzinfo=UTC)
    order = sorted(range(len(given)), key=lambda number: (moments[number] or first, number))
    return [given[number] for number in order]


def _json_line(text: str) -> Line | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("log"), str):
        return None
    inner = read_line(value["log"]) if not value["log"].startswith("{") else Line(value["log"].rstrip("\n"))
    match = _STAMP.match(str(value.get("time", "")))
    return Line(inner.text, _moment(match) if match else inner.at)


def _moment(match: re.Match[str]) -> datetime | None:
    part = (match["part"] or "0").ljust(6, "0")[:6]
    zone = (match["zone"] or "+00:00").replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(f"{match['date']}T{match['time']}.{part}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
