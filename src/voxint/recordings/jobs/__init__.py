"""Language-model jobs beside a finished run: run assets, translation, speaker research. Each is asked for, and is work."""
