"""Schedules: jobs that the daemons push by themselves, at recurring dates (docs/use/SCHEDULING.md)."""
