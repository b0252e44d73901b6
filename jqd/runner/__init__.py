"""Runs batches of claimed jobs on HTTP workers."""

from jqd.runner.carry import Pool, make_pool
from jqd.runner.config import RunnerConfig
from jqd.runner.gates import Gates
from jqd.runner.ledger import TAKE_BYTES_MAX, Stopped
from jqd.runner.pulls import Offer, Pull, Pulls
from jqd.runner.reach import Reach
from jqd.runner.runner import Runner, Running
from jqd.runner.runners import Runners
from jqd.runner.styles.native import BatchJob, batch_jobs
from jqd.runner.verdict import SNOOZE_STATUS, Report, end_attempt, interrupted, says_again
from jqd.runner.views import Seen, Views
from jqd.runner.worker import Card, Worker
from jqd.runner.workers import Workers

__all__ = [
    "SNOOZE_STATUS",
    "TAKE_BYTES_MAX",
    "BatchJob",
    "Card",
    "Gates",
    "Offer",
    "Pool",
    "Pull",
    "Pulls",
    "Reach",
    "Report",
    "Runner",
    "RunnerConfig",
    "Runners",
    "Running",
    "Seen",
    "Stopped",
    "Views",
    "Worker",
    "Workers",
    "batch_jobs",
    "end_attempt",
    "interrupted",
    "make_pool",
    "says_again",
]
