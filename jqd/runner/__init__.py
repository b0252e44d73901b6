"""Runs batches of claimed jobs on HTTP workers."""

from jqd.runner.capacity import Capacity
from jqd.runner.config import RunnerConfig
from jqd.runner.in_flight import TAKE_BYTES_MAX, Stopped
from jqd.runner.outcome import Report, end_attempt, interrupted, is_repeat
from jqd.runner.protocols.native import BatchJob, batch_jobs
from jqd.runner.pulls import Offer, Pull, Pulls
from jqd.runner.registry import WorkerRegistry
from jqd.runner.runner import Runner, Running
from jqd.runner.runners import Runners
from jqd.runner.ssrf import SsrfGuard
from jqd.runner.transport import Pool, make_pool
from jqd.runner.worker import Worker, WorkerSpec
from jqd.runner.worker_health import WorkerHealth, WorkerViews

__all__ = [
    "TAKE_BYTES_MAX",
    "BatchJob",
    "Capacity",
    "Offer",
    "Pool",
    "Pull",
    "Pulls",
    "Report",
    "Runner",
    "RunnerConfig",
    "Runners",
    "Running",
    "SsrfGuard",
    "Stopped",
    "Worker",
    "WorkerHealth",
    "WorkerRegistry",
    "WorkerSpec",
    "WorkerViews",
    "batch_jobs",
    "end_attempt",
    "interrupted",
    "is_repeat",
    "make_pool",
]
