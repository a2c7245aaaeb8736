"""PURE: about how many tokens a text is, for a model whose own count nobody here knows."""

from __future__ import annotations

import re

_PIECE = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_LETTERS = 4
"""Letters of a token in a word of plain letters, as byte-pair vocabularies of English have it on average."""


def estimate(text: str) -> int:
    """Tokens of a text: one for four plain letters or digits, and one for every other character that is no space.

    Rather too many than too few: scripts without spaces come to a token a character, and so does punctuation.
    """
    return sum(-(-len(piece) // _LETTERS) for piece in _PIECE.findall(text))
