"""PURE: the forms of an export by name, each with its file ending, media type and writer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from voxint.recordings.exports.subtitles import srt, vtt
from voxint.recordings.exports.text import markdown, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxint.recordings.exports.document import Transcript


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a transcript."""

    ending: str
    media_type: str
    write: Callable[[Transcript], str]


def _json(transcript: Transcript) -> str:
    return json.dumps(transcript.to_document(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def schema() -> str:
    """The JSON schema of the JSON form, as it is shipped."""
    return resources.files(__package__).joinpath("transcript.schema.json").read_text(encoding="utf-8")


FORMS: dict[str, Form] = {
    "txt": Form(".txt", "text/plain; charset=utf-8", plain),
    "srt": Form(".srt", "application/x-subrip; charset=utf-8", srt),
    "vtt": Form(".vtt", "text/vtt; charset=utf-8", vtt),
    "json": Form(".json", "application/json", _json),
    "md": Form(".md", "text/markdown; charset=utf-8", markdown),
}
"""Every form by the name that people give."""
