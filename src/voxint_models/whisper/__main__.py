"""`python -m voxint_models.whisper --port N`: the speech recognition server."""

from __future__ import annotations

from voxint_models.serving.launch import run
from voxint_models.whisper.faster import load
from voxint_models.whisper.routes import routes

if __name__ == "__main__":
    run("whisper", ("faster-whisper",), load, routes)
