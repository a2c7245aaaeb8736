"""PURE: the transcript as SRT and WebVTT. A strict parser gets every cue back, with its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxint.recordings.exports.clock_times import full
from voxint.recordings.exports.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxint.recordings.exports.document import Transcript

SHORTEST_SECONDS = 0.2
"""A cue that begins and ends at once is shown by no player."""


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle: times in seconds, and text on one line."""

    start: float
    end: float
    speaker: str
    text: str


def cues(transcript: Transcript) -> Iterator[Cue]:
    """A cue for each line, in time, none without text."""
    for line in transcript.lines:
        text = one_line(line.text)
        if text:
            yield Cue(line.start, max(line.end, line.start + SHORTEST_SECONDS), one_line(line.speaker), text)


def srt(transcript: Transcript) -> str:
    """SubRip. It has no escapes: the text stands as it is, on one line, after the speaker's name."""
    written = [
        f"{number}\n{full(cue.start, ',')} --> {full(cue.end, ',')}\n{cue.speaker}: {cue.text}\n"
        for number, cue in enumerate(cues(transcript), 1)
    ]
    return "\n".join(written)


def vtt(transcript: Transcript) -> str:
    """WebVTT, with the speaker as a voice tag."""
    written = [
        f"{full(cue.start, '.')} --> {full(cue.end, '.')}\n<v {_name(cue.speaker)}>{_text(cue.text)}\n"
        for cue in cues(transcript)
    ]
    return "\n".join(["WEBVTT\n", *written])


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _name(name: str) -> str:
    """A name inside a tag: the tag ends at the first `>`, whatever stands before it."""
    return _text(name) or "Unknown speaker"
