"""Voices without a deep-learning framework: where speech is, a vector for a stretch of it, and which belong together."""
