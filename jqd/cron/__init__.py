"""Schedules: jobs that the daemons themselves push at recurring dates (docs/use/SCHEDULING.md)."""
