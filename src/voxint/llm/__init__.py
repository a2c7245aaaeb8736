"""The language model: its client, and whether it is ready."""
