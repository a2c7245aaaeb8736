"""What a recording costs beside the models: `python benchmarks/overhead.py`. A hundred short ones, wall time.

Two seconds of audio each, through a standalone on stand-ins that answer at once, from the first recording's arrival until
the last one's end, with the turn that lies between. Less the time in which at least one model served a call, over their
number: what taking up, decoding, handing on, writing down and taking turns add to a recording, on this many processors.
"""

from __future__ import annotations

from audio_window import covered, worked_off
from figures import Row, row
from ground import folder

from voxint.standalone.environment import processors

RECORDINGS = 100
AT_ONCE = dict.fromkeys(("whisper", "pyannote", "titanet", "language_model"), 0.0)


def measure() -> list[Row]:
    """Three rows."""
    with folder("overhead") as into:
        found = worked_off(into, RECORDINGS, AT_ONCE)
    served = covered(span for spans in found["calls"].values() for span in spans)
    name = f"overhead of a recording, {RECORDINGS} short ones on {processors()} processors"
    return [
        row(f"{name}: wall time outside model calls", (found["wall_seconds"] - served) / RECORDINGS, "s", RECORDINGS),
        row(f"{name}: of it in the GPU lane", found["on_the_gpu_seconds"] / RECORDINGS, "s", RECORDINGS),
        row(f"{name}: of it in the post lane", found["afterwards_seconds"] / RECORDINGS, "s", RECORDINGS),
    ]


if __name__ == "__main__":
    for each in measure():
        print(each)
