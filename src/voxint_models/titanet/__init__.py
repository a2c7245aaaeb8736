"""A voice vector for each stretch of speech."""
