"""Telling somebody when the GPU cannot change hands, and when it can again: once each, whatever restarts meanwhile."""
