"""`python -m voxint_models.titanet --port N`: the voice vector server."""

from __future__ import annotations

from voxint_models.serving.launch import run
from voxint_models.titanet.engines import ENGINES, load
from voxint_models.titanet.routes import routes

if __name__ == "__main__":
    run("titanet", ENGINES, load, routes)
