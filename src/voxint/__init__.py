"""Voxint takes turns on one GPU: a language model on one side, a transcription stack on the other."""

__version__ = "0.1.0"
