"""Checks as data: what is wrong, and what to do about it."""
