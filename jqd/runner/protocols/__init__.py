"""What is sent to each kind of worker, and what its answers mean: one pure file per kind."""

from jqd.runner.protocols.choice import STYLES
from jqd.runner.protocols.protocol import (
    Answer,
    ItemFailures,
    JobReport,
    Judgement,
    Pending,
    Reader,
    Refused,
    Request,
    Sending,
    Started,
    Unclear,
    WorkerProtocol,
)

__all__ = [
    "STYLES",
    "Answer",
    "ItemFailures",
    "JobReport",
    "Judgement",
    "Pending",
    "Reader",
    "Refused",
    "Request",
    "Sending",
    "Started",
    "Unclear",
    "WorkerProtocol",
]
