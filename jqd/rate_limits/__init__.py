"""Constraints: how many jobs may start, by what they are (docs/use/SCHEDULING.md)."""
