"""Schedules: `jqd/cron/`."""
