"""PURE: titles and file names of recordings, and the language codes that people may give."""

from __future__ import annotations

import re
import unicodedata

from voxint.storable import storable_text

TITLE_CHARACTERS = 300
NAME_BYTES = 180
"""Bytes of a file name's own part: the limit of file systems is 255 bytes, and endings come behind it."""

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})?")


def title_of(*candidates: str | None) -> str:
    """The first candidate that says anything, on one line, without control characters, cut to a length."""
    for candidate in candidates:
        text = storable_text(candidate or "")
        spaced = "".join(" " if unicodedata.category(each) in {"Cc", "Zl", "Zp"} else each for each in text)
        title = " ".join(spaced.split())
        if title:
            return title[:TITLE_CHARACTERS]
    return "recording"


def file_stem(title: str) -> str:
    """A title as the front part of a file name that every system takes, cut by bytes at a character's border."""
    kept = "".join("-" if each in '/\\:*?"<>|' or unicodedata.category(each)[0] == "C" else each for each in title)
    stem = " ".join(kept.split()).strip(" .-_") or "recording"
    return stem.encode()[:NAME_BYTES].decode("utf-8", "ignore").rstrip(" .") or "recording"


def language_code(language: str | None) -> str | None:
    """A language code in small letters; None for blank and for `auto`.

    Raises:
        ValueError: it is no code such as `en`, `de` or `pt-br`.
    """
    code = (language or "").strip().lower()
    if code in {"", "auto"}:
        return None
    if not _LANGUAGE.fullmatch(code):
        raise ValueError(f"language: {language!r} is no code such as en or de; auto lets the model tell")
    return code
