"""PURE: turns cut where somebody else begins or ends to speak, so that `overlap` is true of all of a turn or of none."""

from __future__ import annotations

import itertools

from voxint_models.pyannote.diarizer import SpokenTurn

_SHORTEST_SECONDS = 0.02
"""A piece shorter than a frame of the network tells nothing."""


def cut(turns: list[tuple[float, float, str]]) -> list[SpokenTurn]:
    """Turns as (start, end, speaker), in seconds, cut at the edges of others that lie in them; by their beginnings.

    One pass over the edges in order, so that a recording of many hours takes no longer than it must.
    """
    edges = sorted({moment for start, end, _ in turns for moment in (start, end)})
    begins = sorted(turns)
    found: list[SpokenTurn] = []
    active: list[tuple[float, float, str]] = []
    following = 0
    for here, then in itertools.pairwise(edges):
        while following < len(begins) and begins[following][0] <= here:
            active.append(begins[following])
            following += 1
        active = [turn for turn in active if turn[1] > here]
        speakers = sorted({turn[2] for turn in active})
        found += [SpokenTurn(here, then, speaker, overlap=len(speakers) > 1) for speaker in speakers]
    return _joined(found)


def _joined(pieces: list[SpokenTurn]) -> list[SpokenTurn]:
    """Pieces of one speaker that touch and are alike made one; what is shorter than a frame dropped."""
    last: dict[str, int] = {}
    found: list[SpokenTurn] = []
    for piece in pieces:
        at = last.get(piece.speaker)
        if at is not None and found[at].end == piece.start and found[at].overlap == piece.overlap:
            found[at] = SpokenTurn(found[at].start, piece.end, piece.speaker, piece.overlap)
        else:
            last[piece.speaker] = len(found)
            found.append(piece)
    return [turn for turn in found if turn.end - turn.start >= _SHORTEST_SECONDS]
