"""How much of a sample's known words was understood. This is the only step that reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Known:
    """What is said in a sample, and by how many."""

    words: str
    speakers: int


@dataclass(frozen=True, slots=True)
class Understood:
    """A transcript beside the known words."""

    name: str
    known: Known
    heard: str
    speakers: int

    @property
    def right_number(self) -> bool:
        """Whether as many speakers were found as there are."""
        return self.speakers == self.known.speakers


def read(recording: Path) -> Known | None:
    """The known words beside a sample: NAME.txt with `speaker: words` a line. None where there are none."""
    path = recording.with_suffix(".txt")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    turns = [line.split(": ", 1) for line in lines if ": " in line]
    return Known(" ".join(words for _, words in turns), len({speaker for speaker, _ in turns}))


def plain_words(text: str) -> str:
    """Small letters and no punctuation, so that only words are compared."""
    return " ".join(re.sub(r"[^\w' ]+", " ", text.lower().replace("\u2019", "'")).split())


def word_error_rate(understood: Sequence[Understood]) -> float:
    """The share of wrong, missing and added words over all samples, 0 for none."""
    from jiwer import wer  # noqa: PLC0415 - it comes with the offline tier

    return float(
        wer([plain_words(one.known.words) for one in understood], [plain_words(one.heard) for one in understood])
    )
