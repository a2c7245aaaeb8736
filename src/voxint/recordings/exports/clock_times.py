"""PURE: moments of a recording as text. All of them are rounded once, to the millisecond, before they are taken apart."""

from __future__ import annotations


def parts(seconds: float) -> tuple[int, int, int, int]:
    """Hours, minutes, seconds and milliseconds; a moment before the start counts as the start."""
    millis = max(round(seconds * 1000), 0)
    return millis // 3_600_000, millis // 60_000 % 60, millis // 1000 % 60, millis % 1000


def short(seconds: float) -> str:
    """As 0:07, 12:34 or 1:02:03."""
    hours, minutes, rest, _ = parts(seconds)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def full(seconds: float, mark: str) -> str:
    """As 00:00:07.250, with `mark` before the milliseconds."""
    hours, minutes, rest, millis = parts(seconds)
    return f"{hours:02}:{minutes:02}:{rest:02}{mark}{millis:03}"
