"""Constraints: rate and concurrency limits, and pauses, of jobs that an expression matches (docs/use/SCHEDULING.md)."""
