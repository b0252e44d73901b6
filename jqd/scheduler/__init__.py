"""Decides what runs next. Pure: no I/O, no await."""

from jqd.scheduler.dates import Firing, Last, Step, decide
from jqd.scheduler.scheduler import Scheduler, Waiting

__all__ = ["Firing", "Last", "Scheduler", "Step", "Waiting", "decide"]
