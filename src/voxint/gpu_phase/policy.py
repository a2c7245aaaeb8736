"""The operator's numbers, and what follows from them: backoff, the lease's length, and how old an answer may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from voxint.gpu_phase.windows import ALWAYS, Windows

BACKOFF_FIRST = timedelta(seconds=30)
BACKOFF_LONGEST = timedelta(minutes=15)
_DOUBLINGS = 5  # 30 s doubled five times is past the longest; a larger exponent could overflow timedelta


PREPARE_AHEAD = frozenset({"acquire", "prepare"})
"""The stages of the GPU lane that call no model service: with GPU_PHASE_PREPARE_AHEAD they need no open lane."""


def backoff(failures: int) -> timedelta:
    """How long to wait after the `failures`-th failure in a row (1 for the first): 30 s, doubling, 15 min at most."""
    doublings = min(max(failures - 1, 0), _DOUBLINGS)
    return min(BACKOFF_FIRST * (1 << doublings), BACKOFF_LONGEST)


def lease_ttl(tick: timedelta) -> timedelta:
    """How long a lease lasts without a renewal: ten ticks, ten minutes at least."""
    return max(10 * tick, timedelta(seconds=600))


def answer_max_age(tick: timedelta) -> timedelta:
    """How old an answer of the language model may be: three ticks, a minute and a half at least."""
    return max(3 * tick, timedelta(seconds=90))


def task_max_silence(tick: timedelta) -> timedelta:
    """How long the phase task may be silent: three ticks, two minutes at least."""
    return max(3 * tick, timedelta(seconds=120))


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions depend on."""

    enabled: bool = True
    tick: timedelta = timedelta(seconds=30)
    min_dwell: timedelta = timedelta(seconds=600)
    max_audio: timedelta = timedelta(seconds=7200)
    acquire_limit: timedelta = timedelta(seconds=600)
    start_limit: timedelta = timedelta(seconds=600)
    stop_limit: timedelta = timedelta(seconds=120)
    release_limit: timedelta = timedelta(seconds=900)
    windows: Windows = ALWAYS
    ahead: frozenset[str] = frozenset()
    """Stages of the GPU lane that are done while it is closed too, and are no work of the lane for anybody."""

    @property
    def ttl(self) -> timedelta:
        """How long a lease lasts without a renewal."""
        return lease_ttl(self.tick)

    @property
    def answer_max_age(self) -> timedelta:
        """How old the language model's last answer may be while the post lane stays open."""
        return answer_max_age(self.tick)

    @property
    def task_max_silence(self) -> timedelta:
        """How long ago the last tick may be while the phase task still counts as running."""
        return task_max_silence(self.tick)
