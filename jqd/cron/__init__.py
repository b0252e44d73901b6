"""Schedules: jobs that the daemons push by themselves, at dates that come again (docs/use/SCHEDULING.md)."""
