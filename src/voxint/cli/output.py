"""What the commands print: data on stdout, everything else on stderr, and nothing in it taken for markup.

Text that is not ours (file names, errors, answers of other programs) may hold brackets, colour codes and control
characters. It is printed as it is, without the control characters, and never read as an instruction.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rich.console import Console

_STYLES = {"ok": "32", "warn": "33", "fail": "1;31", "off": "2", "head": "1", "": ""}
"""Numbers of ANSI's colours: green, yellow, bold red, faint, bold."""


class CouldNotError(Exception):
    """Something expected kept a command from doing its work. Its lines go to stderr, and the exit status is 1."""


@cache
def console() -> Console:
    """Standard output, for what is redrawn."""
    from rich.console import Console  # noqa: PLC0415 - a tenth of a second that a command of a few lines does not owe

    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def plain(text: object) -> str:
    """One line of text without characters that a terminal would obey."""
    spaced = (" " if unicodedata.category(character) in {"Cc", "Zl", "Zp"} else character for character in str(text))
    return "".join(character for character in spaced if unicodedata.category(character) not in {"Cf", "Cs"})


def say(text: str, style: str = "") -> None:
    """One line of a command's result, on stdout. `style` is ok, warn, fail, off, head, or empty."""
    _write(sys.stdout, text, style)


def note(text: str, style: str = "") -> None:
    """One line beside the result, on stderr: progress, a warning."""
    _write(sys.stderr, text, style)


def _write(stream: TextIO, text: str, style: str) -> None:
    line, code = plain(text), _STYLES[style]
    stream.write(f"\x1b[{code}m{line}\x1b[0m\n" if code and _coloured(stream) else f"{line}\n")
    stream.flush()


def _coloured(stream: TextIO) -> bool:
    """Colours only where the stream is a terminal that knows them, and NO_COLOR is not set."""
    known = os.environ.get("TERM", "").lower() not in {"", "dumb", "unknown"}
    return known and not os.environ.get("NO_COLOR") and stream.isatty()


def complain(text: str) -> None:
    """What could not be done, on stderr; one line each."""
    for line in text.splitlines() or [""]:
        note(f"error: {line}", "fail")


def say_json(value: object) -> None:
    """A value as JSON on stdout, and nothing else."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Labels and values, the values in one column."""
    width = max(len(label) for label, _ in pairs) + 2
    for label, value in pairs:
        say(f"{label + ':':<{width}}{value}")


def say_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns, each as wide as its widest cell; the last one as it is. Plain text: it can be cut and searched."""
    table = [[plain(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(_width(row[column]) for row in table) for column in range(len(heads) - 1)]
    for number, row in enumerate(table):
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        say("  ".join([*cells, row[-1]]).rstrip(), "" if number else "head")


def _width(text: str) -> int:
    """Cells that a text takes on a terminal: two for wide characters, none for marks that combine."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
