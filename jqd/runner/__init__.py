"""Runs batches of claimed jobs on HTTP workers."""

from jqd.runner.capacity import Gates
from jqd.runner.config import RunnerConfig
from jqd.runner.in_flight import TAKE_BYTES_MAX, Stopped
from jqd.runner.outcome import SNOOZE_STATUS, Report, end_attempt, interrupted, says_again
from jqd.runner.protocols.native import BatchJob, batch_jobs
from jqd.runner.pulls import Offer, Pull, Pulls
from jqd.runner.registry import Workers
from jqd.runner.runner import Runner, Running
from jqd.runner.runners import Runners
from jqd.runner.ssrf import Reach
from jqd.runner.transport import Pool, make_pool
from jqd.runner.worker import Card, Worker
from jqd.runner.worker_health import Seen, Views

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
