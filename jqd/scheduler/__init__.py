"""Decides what runs next. Pure: no I/O, no await."""

from jqd.scheduler.scheduler import Scheduler, Waiting

__all__ = ["Scheduler", "Waiting"]
