"""PURE: the transcript as plain text and as Markdown, with a header that says what made it."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from voxint.recordings.exports.clock_times import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxint.recordings.exports.document import SpokenLine, Transcript

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-!|~&])")
NOTHING = "(No speech was found.)"


def one_line(text: str) -> str:
    """A text on one line: nothing in it can begin a line of its own."""
    return " ".join(text.split())


def plain(transcript: Transcript) -> str:
    """Plain text: a header, an empty line, and a line for each thing that was said."""
    head = [one_line(transcript.title), *(one_line(line) for line in transcript.header), ""]
    body = [f"[{short(line.start)}] {one_line(line.speaker)}: {one_line(line.text)}" for line in transcript.lines]
    return "\n".join([*head, *(body or [NOTHING])]) + "\n"


def markdown(transcript: Transcript) -> str:
    """Markdown: a heading, the header as a quote, and a paragraph for each speaker's turn."""
    parts = [f"# {escaped(transcript.title)}", "\n".join(f"> {escaped(line)}  " for line in transcript.header)]
    for speaker, lines in _turns(transcript):
        text = " ".join(escaped(line.text) for line in lines)
        parts.append(f"**{escaped(speaker)}** ({short(lines[0].start)}): {text}")
    if not transcript.lines:
        parts.append(f"*{NOTHING}*")
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """A text in which Markdown sees nothing but text: no link, no markup, no HTML, no list."""
    escaped_text = _SPECIAL.sub(r"\\\1", one_line(text))
    # A number and a dot at the front would begin a list.
    return re.sub(r"^(\d{1,9})([.)])", r"\1\\\2", escaped_text)


def _turns(transcript: Transcript) -> Iterator[tuple[str, list[SpokenLine]]]:
    for speaker, lines in groupby(transcript.lines, key=lambda line: line.speaker):
        yield speaker, list(lines)
