"""What is sent to each kind of worker, and what its answers mean: one pure file per kind."""

from jqd.runner.protocols.choice import STYLES
from jqd.runner.protocols.protocol import (
    Answer,
    Heard,
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
    "Heard",
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
