"""Decides what runs next. Pure: no I/O, no await."""

from jqd.scheduler.counts import Counts
from jqd.scheduler.policy import OldestFirst, Policy, Waiting
from jqd.scheduler.scheduler import Scheduler, SchedulerStats, Selection

__all__ = ["Counts", "OldestFirst", "Policy", "Scheduler", "SchedulerStats", "Selection", "Waiting"]
