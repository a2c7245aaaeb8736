"""The `.env` beside the compose files: read as compose reads it, changed without losing a line, never readable by others."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)$")
_QUOTED = re.compile(r"""(['"])(.*?)\1(?:\s+#.*)?""")
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=~-]*")


def read(text: str) -> dict[str, str]:
    """The names that have a value, and these; what compose would fill in for `${...}` stays as it is written."""
    found = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            value = _value(match[2].strip())
            if value:
                found[match[1]] = value
    return found


def _value(text: str) -> str:
    quoted_one = _QUOTED.fullmatch(text)
    if quoted_one:
        return quoted_one[2]
    return text.partition(" #")[0].rstrip()


def changed(text: str, values: Mapping[str, str]) -> str:
    """The file's text with these values: in the line that sets the name last, or at the end. All else stays.

    Raises:
        ValueError: a value that no line of the file can hold.
    """
    lines = text.splitlines()
    last = {match[1]: number for number, line in enumerate(lines) if (match := _LINE.match(line))}
    for name, value in values.items():
        line = f"{name}={quoted(value)}"
        if name in last:
            lines[last[name]] = line
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def quoted(value: str) -> str:
    """A value as it must stand in the file, so that compose takes nothing in it for a comment or a variable."""
    if _BARE.fullmatch(value):
        return value
    if "'" in value or any(not character.isprintable() for character in value):
        msg = "cannot hold a single quote or a line break"
        raise ValueError(msg)
    return f"'{value}'"


def write(path: Path, text: str) -> None:
    """Put the file in place in one step, for its owner alone: it holds passwords.

    A link stays one, and who owns the file goes on to: root may set a checkout of somebody else's up.
    """
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):  # there is none yet, or it may not be given away
            owner = path.stat()
            os.chown(temporary, owner.st_uid, owner.st_gid)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
