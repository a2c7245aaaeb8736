"""The first set-up of a host: what is found on it, what only a person knows, and the file that both are written to."""
