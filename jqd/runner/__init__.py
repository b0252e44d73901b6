"""Runs batches of claimed jobs on HTTP workers."""

from jqd.runner.config import RunnerConfig
from jqd.runner.ledger import Stopped
from jqd.runner.runner import DoneAnswer, Offer, Runner, Running
from jqd.runner.verdict import Report
from jqd.runner.wire import Said, Unclear, decode_answer
from jqd.runner.workers import Worker, Workers

__all__ = [
    "DoneAnswer",
    "Offer",
    "Report",
    "Runner",
    "RunnerConfig",
    "Running",
    "Said",
    "Stopped",
    "Unclear",
    "Worker",
    "Workers",
    "decode_answer",
]
