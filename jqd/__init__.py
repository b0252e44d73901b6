"""jqd: a durable, journal-based job queue daemon.

Here are the names for programs that push or declare jobs: `jqd.App`, `jqd.Client`, `jqd.current` and so on. Each is
imported when it is first used, so that it costs the command line and the daemon nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jqd.client import AsyncClient as AsyncClient
    from jqd.client import Buffer as Buffer
    from jqd.client import BufferFull as BufferFull
    from jqd.client import Cancel as Cancel
    from jqd.client import Client as Client
    from jqd.client import JobFailed as JobFailed
    from jqd.client import JobInfo as JobInfo
    from jqd.client import JqdClientError as JqdClientError
    from jqd.client import NoResult as NoResult
    from jqd.client import NotPushed as NotPushed
    from jqd.client import TimedOut as TimedOut
    from jqd.worker.app import App as App
    from jqd.worker.context import Cancelled as Cancelled
    from jqd.worker.context import Context as Context
    from jqd.worker.context import Failed as Failed
    from jqd.worker.context import Retry as Retry
    from jqd.worker.context import Snooze as Snooze
    from jqd.worker.context import current as current
    from jqd.worker.job import Job as Job
    from jqd.worker.ref import FlowRef as FlowRef
    from jqd.worker.ref import Ref as Ref
    from jqd.worker.steps import after as after
    from jqd.worker.steps import chain as chain
    from jqd.worker.steps import group as group

__version__ = "0.1.0"

_HOMES = {
    "jqd.client": (
        "AsyncClient",
        "Buffer",
        "BufferFull",
        "Cancel",
        "Client",
        "JobFailed",
        "JobInfo",
        "JqdClientError",
        "NoResult",
        "NotPushed",
        "TimedOut",
    ),
    "jqd.worker.app": ("App",),
    "jqd.worker.context": ("Cancelled", "Context", "Failed", "Retry", "Snooze", "current"),
    "jqd.worker.job": ("Job",),
    "jqd.worker.ref": ("FlowRef", "Ref"),
    "jqd.worker.steps": ("after", "chain", "group"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
