"""Lengths of time as people type them: `90s`, `30m`, `2h`, `1d`, `1h30m`; a bare number is seconds."""

from __future__ import annotations

import re
from datetime import timedelta

import typer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_LONGEST = timedelta(days=3650)


def parse(text: str) -> timedelta:
    """Read a length of time.

    Raises:
        typer.BadParameter: it is none, is zero, or is longer than ten years.
    """
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        bare += "s"
    parts = _PART.findall(bare)
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        raise typer.BadParameter(f"{text!r} is no length of time such as 90s, 30m, 2h, 1d or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise typer.BadParameter(f"{text!r} must be longer than nothing and at most {_LONGEST.days} days")
    return timedelta(seconds=seconds)
