"""Which speed each process of a text-to-speech service had, from its log. Pure.

A process that draws its device once keeps one speed for its whole life, and a new process draws again. So the reads
are grouped by process start, and the groups, not the days, are what differs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean
from voxint.services.placement.judge import Printed, Timing
from voxint.services.placement.log_lines import in_order, read_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from voxint.services.placement.log_lines import Line

OPENS = re.compile(r"Started server process \[\d+\]")
"""uvicorn's first line: a new process, and so a new draw."""

READ = re.compile(
    r"Generated audio for (?P<characters>\d+) characters in (?P<seconds>\d+(?:\.\d+)?(?:[eE]-?\d+)?) ?s\b"
)
"""speaches' line for one read of text."""

FELL_BACK = (
    re.compile(r"EP Error\b.*"),
    re.compile(r"Falling back to \['CPUExecutionProvider'\].*"),
    re.compile(r"Failed to create (?:CUDA|ROCM|MIGraphX)ExecutionProvider\b.*"),
)
"""Lines by which onnxruntime says that it could not use the GPU and took the CPU."""

LONG_READ_CHARACTERS = 1000
"""Only reads this long tell: in a short one the fixed cost of a request hides the speed."""

CPU_BELOW = 200.0
GPU_FROM = 400.0
"""Characters a second for Kokoro. 20 processes on one card: 9 on the CPU with 75 to 144, 11 on the GPU with 574 to
1,056, none between."""

_MIXED_SHARE = 0.2
_MIXED_READS = 2


class Regime(StrEnum):
    """What a process's speed says."""

    GPU = "GPU"
    CPU = "CPU"
    MIXED = "mixed"  # both speeds in one process: no draw does that; a fallback, or a busy GPU, may
    BETWEEN = "unclear"
    UNTIMED = "-"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which rates, in characters a second, nothing is concluded."""

    cpu_below: float = CPU_BELOW
    gpu_from: float = GPU_FROM

    def regime(self, rate: float) -> Regime:
        """What one rate says."""
        if rate < self.cpu_below:
            return Regime.CPU
        return Regime.GPU if rate >= self.gpu_from else Regime.BETWEEN


@dataclass(frozen=True, slots=True)
class Read:
    """One text that was read aloud."""

    characters: int
    seconds: float

    @property
    def rate(self) -> float:
        """Characters a second."""
        return self.characters / self.seconds


@dataclass(frozen=True, slots=True)
class Start:
    """One process: from its start to the next one, or to the end of the log."""

    at: datetime | None
    """When it started; where the log begins in its middle, the moment of the first line that is left of it."""
    cut: bool
    """Whether its start is missing from the log."""
    exact: bool
    """Whether the line of its start carries a time; without one, `at` is that of the first line that does."""
    reads: tuple[Read, ...]
    """Those that are long enough to tell."""
    short_reads: int
    fell_back: str | None
    bounds: Bounds

    @property
    def rate(self) -> float | None:
        """Characters a second over all of its long reads together."""
        if not self.reads:
            return None
        return sum(read.characters for read in self.reads) / sum(read.seconds for read in self.reads)

    @property
    def regime(self) -> Regime:
        """What its reads say."""
        if self.rate is None:
            return Regime.UNTIMED
        sides = Counter(self.bounds.regime(read.rate) for read in self.reads)
        fewer = min(sides[Regime.CPU], sides[Regime.GPU])
        if fewer >= _MIXED_READS and fewer >= _MIXED_SHARE * len(self.reads):
            return Regime.MIXED
        return self.bounds.regime(self.rate)


def starts_of(raw: Iterable[str], bounds: Bounds | None = None) -> tuple[Start, ...]:
    """Group a log by process start, oldest first.

    Args:
        raw: the log's lines, in any of the shapes that log_lines knows.
        bounds: which rates count as the CPU's and the GPU's.
    """
    groups: list[list[Line]] = [[]]
    for line in in_order((read_line(text) for text in raw), OPENS):
        if OPENS.search(line.text):
            groups.append([])
        groups[-1].append(line)
    cut, *whole = groups
    starts = [_start(group, cut=False, bounds=bounds or Bounds()) for group in whole]
    if any(_read(line.text) or _fallback(line.text) for line in cut):
        starts.insert(0, _start(cut, cut=True, bounds=bounds or Bounds()))
    return tuple(starts)


def counted(starts: Sequence[Start]) -> Counter[Regime]:
    """How many processes had each regime."""
    return Counter(start.regime for start in starts)


def printed(starts: Sequence[Start], gpu_rate: float | None = None) -> Printed | None:
    """What the log says of the process that runs now: the newest one.

    Args:
        starts: the processes in the log, oldest first.
        gpu_rate: this host's own rate on the GPU, in characters a second. Without one, that of the log's other
            processes on the GPU stands in; without those, the speed tells nothing.
    """
    if not starts:
        return None
    newest = starts[-1]
    others = [start.rate for start in starts[:-1] if start.rate is not None and start.regime is Regime.GPU]
    usual = gpu_rate if gpu_rate is not None else (median(others) if others else None)
    timing = None if newest.rate is None else Timing(newest.rate, "characters", usual)
    return Printed(newest.fell_back, timing)


def _start(lines: Sequence[Line], *, cut: bool, bounds: Bounds) -> Start:
    found = [read for line in lines if (read := _read(line.text)) is not None]
    return Start(
        at=next((line.at for line in lines if line.at is not None), None),
        cut=cut,
        exact=bool(lines) and lines[0].at is not None,
        reads=tuple(read for read in found if read.characters >= LONG_READ_CHARACTERS),
        short_reads=sum(read.characters < LONG_READ_CHARACTERS for read in found),
        fell_back=next((text for line in lines if (text := _fallback(line.text))), None),
        bounds=bounds,
    )


def _read(text: str) -> Read | None:
    match = READ.search(text)
    if match is None:
        return None
    characters, seconds = int(match["characters"]), float(match["seconds"])
    return Read(characters, seconds) if seconds > 0 else None


def _fallback(text: str) -> str | None:
    for pattern in FELL_BACK:
        match = pattern.search(text)
        if match is not None:
            return clean(match.group())
    return None
