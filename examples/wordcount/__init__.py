"""Counts the standard library of the running Python, one job per file."""
