"""PURE: whether a demo proved what it should, and the line that says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxint.gpu_phase.wording import figures
from voxint.standalone.demo.timeline import AUDIO, LANGUAGE_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_WRONG = 0.15
"""The highest word error rate of the samples that counts as understood."""
RIGHT_SPEAKERS = 2
"""In how many samples the number of speakers must be right."""
TURN = (LANGUAGE_MODEL, AUDIO, LANGUAGE_MODEL)


@dataclass(frozen=True, slots=True)
class Facts:
    """What came out. `word_error_rate` and `right_speakers` are None for the user's own recordings."""

    recordings: int
    not_done: Sequence[str]
    hands: Sequence[str]
    faults: Sequence[str]
    seconds: float
    word_error_rate: float | None = None
    right_speakers: int | None = None
    again: str = field(default="")


def problems(facts: Facts) -> tuple[str, ...]:
    """Everything that is not as it should be."""
    found = [*facts.not_done, *facts.faults]
    if tuple(facts.hands)[: len(TURN)] != TURN or facts.hands[-1] != LANGUAGE_MODEL:
        found.append(f"the GPU went {path(facts.hands) or 'nowhere'}, and not {path(TURN)}")
    if facts.word_error_rate is not None and not facts.word_error_rate <= MOST_WRONG:
        found.append(
            f"the word error rate is {percent(facts.word_error_rate)}, and at most {percent(MOST_WRONG)} is good"
        )
    if facts.right_speakers is not None and facts.right_speakers < RIGHT_SPEAKERS:
        found.append(
            f"the number of speakers is right in {facts.right_speakers} samples, and should be in {RIGHT_SPEAKERS}"
        )
    return tuple(found)


def last_line(facts: Facts) -> str:
    """The demo's last line."""
    done = facts.recordings - len(facts.not_done)
    parts = [f"{figures.count(done, 'recording')} done", path(facts.hands)]
    if facts.word_error_rate is not None:
        parts.append(f"WER {percent(facts.word_error_rate)}")
    parts.append(f"{facts.seconds:.0f} s")
    return f"demo: {', '.join(part for part in parts if part)}{facts.again}"


def path(hands: Sequence[str]) -> str:
    """Who had the GPU, in one row."""
    return " -> ".join(hands)


def percent(share: float) -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f} %"
