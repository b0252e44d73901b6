"""The SDK for programs that push jobs. It imports nothing of the daemon."""

from typing import TYPE_CHECKING, Any

from jqd.client.buffer import Buffer
from jqd.client.client import TIMEOUT_S_DEFAULT, Client
from jqd.client.environ import URL_DEFAULT, daemon_urls
from jqd.client.errors import (
    BufferFull,
    ClientClosed,
    Conflict,
    Forbidden,
    Invalid,
    ItemError,
    JobFailed,
    JqdClientError,
    LessSafe,
    NoResult,
    NotFound,
    NotPushed,
    PartlyPushed,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
    WrongToken,
    WrongUrl,
)
from jqd.client.events import JobEvent, JobEvents
from jqd.client.flows import FlowInfo, FlowJob, GroupInfo, GroupWaits
from jqd.client.job_info import Ack, Cancel, Changed, JobInfo
from jqd.client.pending import Pending

__all__ = [
    "TIMEOUT_S_DEFAULT",
    "URL_DEFAULT",
    "Ack",
    "AsyncClient",
    "Buffer",
    "BufferFull",
    "Cancel",
    "Changed",
    "Client",
    "ClientClosed",
    "Conflict",
    "FlowInfo",
    "FlowJob",
    "Forbidden",
    "GroupInfo",
    "GroupWaits",
    "Invalid",
    "ItemError",
    "JobEvent",
    "JobEvents",
    "JobFailed",
    "JobInfo",
    "JqdClientError",
    "LessSafe",
    "NoResult",
    "NotFound",
    "NotPushed",
    "PartlyPushed",
    "Pending",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "Unreachable",
    "WrongToken",
    "WrongUrl",
    "daemon_urls",
]

if TYPE_CHECKING:
    from jqd.client.aio import AsyncClient as AsyncClient


def __getattr__(name: str) -> Any:
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A quarter of what a script spends that pushes one job would go into anyio, which it does not use.
    from jqd.client.aio import AsyncClient

    globals()[name] = AsyncClient
    return AsyncClient
