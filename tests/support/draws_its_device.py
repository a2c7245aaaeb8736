"""A model service that comes up on the CPU at its first starts, as one that draws its device: COUNTER BAD_STARTS ARGS...

Counts its starts in a file, then becomes the stand-in server with that device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

counter, bad_starts, *arguments = sys.argv[1:]
path = Path(counter)
number = int(path.read_text() or 0) + 1 if path.exists() else 1
path.write_text(str(number))
device = "cpu" if number <= int(bad_starts) else "cuda:0"
os.execv(sys.executable, [sys.executable, "-m", "voxint_models.stub", *arguments, "--device", device])
