"""What is said to each kind of worker, and what its answers mean: one file per kind, all of it pure."""

from jqd.runner.protocols.choice import STYLES
from jqd.runner.protocols.protocol import (
    Answer,
    Chain,
    ItemFailures,
    Judgement,
    Reader,
    Refused,
    Request,
    Sending,
    Started,
    Unclear,
    WorkerProtocol,
    WorkerSaid,
)

__all__ = [
    "STYLES",
    "Answer",
    "Chain",
    "ItemFailures",
    "Judgement",
    "Reader",
    "Refused",
    "Request",
    "Sending",
    "Started",
    "Unclear",
    "WorkerProtocol",
    "WorkerSaid",
]
