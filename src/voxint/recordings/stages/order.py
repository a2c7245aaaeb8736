"""The stages of a run in their order, each with the lane that it belongs to."""

from __future__ import annotations

STAGE_ORDER: tuple[tuple[str, str], ...] = (
    ("acquire", "gpu"),
    ("prepare", "gpu"),
    ("transcribe", "gpu"),
    ("diarize_embed", "gpu"),
    ("enhance_match", "post"),
    ("finalize", "post"),
)
FIRST_STAGE, FIRST_LANE = STAGE_ORDER[0]
