"""Recordings on their way: runs, stages, transcripts, exports."""
