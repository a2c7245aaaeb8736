"""PURE: the hours of the day in which the GPU may go to audio by itself (GPU_PHASE_WINDOWS).

A window is wall-clock time: on the two nights a year when the clock is changed it is an hour shorter or longer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from datetime import tzinfo

_DAY = 24 * 60
_RANGE = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)")
_EXPECTED = "must be hours of the day as 22:00-07:00, several separated by commas"


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of the day, in minutes after midnight: (begin, end), the end not included.

    One whose end is not after its begin goes on over midnight. Without a stretch there is no limit at all.
    """

    stretches: tuple[tuple[int, int], ...] = ()
    zone: tzinfo | None = None
    """Whose clock; None is the machine's own (TZ)."""

    @classmethod
    def parse(cls, text: str, zone: tzinfo | None = None) -> Self:
        """Read `22:00-07:00, 12:00-13:00`; blank is no limit.

        Raises:
            ValueError: with what is expected; a stretch of no length is refused too.
        """
        found = []
        for part in (part.strip() for part in text.split(",")):
            if not part:
                continue
            match = _RANGE.fullmatch(part)
            begin, end = (_minutes(match[1], match[2]), _minutes(match[3], match[4])) if match else (0, 0)
            if match is None or begin == end or begin >= _DAY or end > _DAY:
                msg = f"{part!r}: {_EXPECTED}"
                raise ValueError(msg)
            found.append((begin, end))
        return cls(tuple(found), zone)

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self.stretches)

    def __str__(self) -> str:
        """As it is written in the settings."""
        return ", ".join(f"{_clock(begin)}-{_clock(end)}" for begin, end in self.stretches)

    @property
    def shortest(self) -> timedelta | None:
        """How long the shortest stretch is; None without one."""
        lengths = [(end - begin) % _DAY or _DAY for begin, end in self.stretches]
        return timedelta(minutes=min(lengths)) if lengths else None

    def open_at(self, moment: datetime) -> bool:
        """Whether a switch may begin at this moment."""
        local = moment.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        return not self.stretches or any(_within(minute, begin, end) for begin, end in self.stretches)

    def opens_at(self, moment: datetime) -> datetime | None:
        """When the next window begins; None where one is open at this moment, or where there is no limit."""
        if self.open_at(moment):
            return None
        return min(self._next(moment, begin) for begin, _ in self.stretches)

    def closes_at(self, moment: datetime) -> datetime | None:
        """When the open window ends; None where none is open, where there is no limit, or where it never ends."""
        if not self.stretches or not self.open_at(moment):
            return None
        # A window that begins where another ends goes on with it; the round ends after a day.
        end = moment
        while end - moment <= timedelta(days=1):
            end = min(self._next(end, stop % _DAY) for _, stop in self.stretches)
            if not self.open_at(end):
                return end
        return None

    def _next(self, moment: datetime, minute: int) -> datetime:
        """The next moment, after this one, at which the clock shows so many minutes after midnight."""
        today = moment.astimezone(self.zone).date()
        for days in range(3):  # a clock that is changed may leave today's and tomorrow's behind `moment`
            day = today + timedelta(days=days)
            shown = datetime(day.year, day.month, day.day, minute // 60, minute % 60, tzinfo=self.zone)
            at = shown.astimezone(moment.tzinfo)
            if at > moment:
                break
        return at


ALWAYS = Windows()


def _minutes(hours: str, minutes: str) -> int:
    return int(hours) * 60 + int(minutes)


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _within(minute: int, begin: int, end: int) -> bool:
    return begin <= minute < end if begin < end else minute >= begin or minute < end
