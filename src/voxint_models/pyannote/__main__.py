"""`python -m voxint_models.pyannote --port N`: the diarization server."""

from __future__ import annotations

from voxint_models.pyannote.engines import ENGINES, load
from voxint_models.pyannote.routes import routes
from voxint_models.serving.launch import run

if __name__ == "__main__":
    run("pyannote", ENGINES, load, routes)
