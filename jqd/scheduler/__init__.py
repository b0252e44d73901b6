"""Decides what runs next. Pure: no I/O, no await."""

from jqd.scheduler.policies import Fair, Policy, Random, SchedulerConfig, Strict, Waiting, make_policy
from jqd.scheduler.scheduler import NO_BOUND, Scheduler

__all__ = [
    "NO_BOUND",
    "Fair",
    "Policy",
    "Random",
    "Scheduler",
    "SchedulerConfig",
    "Strict",
    "Waiting",
    "make_policy",
]
