"""Media files in: what is in them, and their sound as 16 kHz mono WAV. The decoder is a child process with limits."""
