"""PURE: moments, spans and counts as people read them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 recording`, `3 recordings`, `12,000 recordings`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def are(number: int) -> str:
    """The verb for so many."""
    return "is" if number == 1 else "are"


def span(length: timedelta) -> str:
    """A length of time in at most two units: `45 s`, `12 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = max(round(length.total_seconds()), 0)
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return _two(seconds, _MINUTE, "min", 1, "s")
    if seconds < _DAY:
        return _two(seconds, _HOUR, "h", _MINUTE, "min")
    return _two(seconds, _DAY, "d", _HOUR, "h")


def _two(seconds: int, large: int, name: str, small: int, small_name: str) -> str:
    whole, rest = divmod(seconds, large)
    part = rest // small
    return f"{whole} {name} {part} {small_name}" if part else f"{whole} {name}"


def moment(at: datetime, zone: tzinfo | None) -> str:
    """Date, time and the zone's name. `zone` None is the machine's own."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")


def clock(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """The time alone where the day is today's; else the date with it."""
    there, here = at.astimezone(zone), now.astimezone(zone)
    return there.strftime("%H:%M:%S %Z") if there.date() == here.date() else moment(at, zone)


def ago(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """A past moment and how long it is gone."""
    return f"{moment(at, zone)} ({span(now - at)} ago)"


def ahead(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """A moment and how far away it is, or that it has passed."""
    distance = at - now
    if distance > timedelta(0):
        return f"{moment(at, zone)} (in {span(distance)})"
    return f"{moment(at, zone)} (passed)"


def phrase(text: str) -> str:
    """A stored reason for the middle of a sentence: on one line, without a stop at its end."""
    return clean(text).rstrip(". ")


def capital(text: str) -> str:
    """With a capital at its start."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A reason as a sentence of its own: a capital at its start, a stop at its end."""
    text = text.strip()
    if not text:
        return ""
    ended = text if text[-1] in ".!?" else f"{text}."
    return capital(ended)
