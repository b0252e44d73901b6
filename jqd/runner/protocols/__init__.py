"""What is said to each kind of worker, and what its answers mean: one file per kind, all of it pure."""

from jqd.runner.protocols.choice import STYLES, style_of
from jqd.runner.protocols.protocol import (
    Answer,
    Chain,
    ItemFailures,
    Judgement,
    Reader,
    Refused,
    Request,
    Said,
    Sending,
    Started,
    Style,
    Unclear,
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
    "Said",
    "Sending",
    "Started",
    "Style",
    "Unclear",
    "style_of",
]
