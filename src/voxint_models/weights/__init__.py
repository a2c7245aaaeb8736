"""Weights that are fetched: which, from where, and into which folder."""
