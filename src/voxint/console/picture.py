"""PURE: the timeline as SVG: who had the GPU in the last hours. Readable without colours and without JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Phase
from voxint.gpu_phase.timeline import Owner
from voxint.gpu_phase.view import NO_PHASE
from voxint.gpu_phase.wording import figures
from voxint.gpu_phase.wording.phases import CAUSE_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from voxint.gpu_phase.timeline import Stretch

WIDTH, HEIGHT = 960, 60
TOP, BAR = 8, 44
_ROWS = {Owner.LANGUAGE_MODEL: 0, Owner.AUDIO: 1}
_MOST_BARS = 600
_HOURS_APART = 4
_ROOM = 36  # half a label on a narrow screen

OWNER_WORDS = {
    Owner.LANGUAGE_MODEL: "language model",
    Owner.AUDIO: "recordings",
    Owner.CHANGING: "changing hands",
    Owner.ERROR: "error",
    Owner.NOBODY_KNOWN: "not recorded",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle: a stretch of time in the row of who had the GPU, with words for a pointer and a screen reader."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One hour below the bars."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the template draws."""

    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    summary: str
    shares: tuple[tuple[str, str, str], ...]
    """Kind, words and share of each owner, for the legend."""
    width: int = WIDTH
    height: int = HEIGHT


def picture(stretches: Sequence[Stretch], zone: tzinfo | None) -> Picture | None:
    """The window that the stretches fill as a picture; None where there is none."""
    if not stretches:
        return None
    begin, end = stretches[0].since, stretches[-1].until
    total = end - begin
    shown = stretches[-_MOST_BARS:]
    bars = tuple(_bar(stretch, begin, total, zone) for stretch in shown)
    lengths: dict[Owner, timedelta] = {}
    for stretch in stretches:
        lengths[stretch.owner] = lengths.get(stretch.owner, timedelta(0)) + stretch.length
    shares = tuple(
        (owner.value, words, f"{lengths[owner] / total:.0%}")
        for owner, words in OWNER_WORDS.items()
        if owner in lengths
    )
    turns = sum(1 for stretch in stretches if stretch.phase is Phase.AUDIO and stretch.cause is not None)
    told = ", ".join(f"{words} {share}" for _, words, share in shares)
    summary = (
        f"Who had the GPU from {figures.moment(begin, zone)} to {figures.moment(end, zone)}: {told}."
        f" {figures.count(turns, 'audio window')} began."
    )
    return Picture(bars, _marks(begin, end, zone), summary, shares)


def _bar(stretch: Stretch, begin: datetime, total: timedelta, zone: tzinfo | None) -> Bar:
    x = WIDTH * ((stretch.since - begin) / total)
    width = max(WIDTH * (stretch.length / total), 0.75)  # a short switch must not vanish
    row = _ROWS.get(stretch.owner)
    y, height = (TOP, BAR) if row is None else (TOP + row * BAR / 2, BAR / 2)
    name = stretch.phase.value if stretch.phase else NO_PHASE
    why = f", because {CAUSE_WORDS[stretch.cause]}" if stretch.cause else ""
    words = f"{name} from {figures.moment(stretch.since, zone)} for {figures.span(stretch.length)}{why}"
    return Bar(round(x, 2), y, round(width, 2), height, stretch.owner.value, words)


def _marks(begin: datetime, end: datetime, zone: tzinfo | None) -> tuple[Mark, ...]:
    first = begin.astimezone(zone).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    found = []
    for hours in range(26):
        at = first + timedelta(hours=hours)
        x = WIDTH * ((at - begin) / (end - begin))
        if at.hour % _HOURS_APART == 0 and _ROOM <= x <= WIDTH - _ROOM:
            found.append(Mark(round(x, 1), f"{at:%H:%M}"))
    return tuple(found)
