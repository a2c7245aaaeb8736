"""`python -m voxint_models.language_model --port N`: the small language model. It takes the card for itself."""

from __future__ import annotations

from voxint_models.card import Side
from voxint_models.language_model.llama import load
from voxint_models.language_model.routes import routes
from voxint_models.serving.launch import run

if __name__ == "__main__":
    run("language_model", ("llama.cpp",), load, routes, Side.LLM)
