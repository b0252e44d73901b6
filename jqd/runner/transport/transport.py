"""What every carrier does: it takes jobs to a worker, tells a listener what comes back, and says how that ended.

Today there is one, an HTTP POST (`post.py`). What the worker's words mean for the jobs is decided elsewhere.
"""

import enum
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from jqd.runner.protocols import Answer, Judgement, Sending


class Listener(Protocol):
    """Told what happens while jobs are carried; never waits."""

    def sending(self) -> bool:
        """The next byte goes to the worker. False: do not send."""
        ...

    def answered(self, judgement: Judgement) -> None:
        """The worker has answered; what it says of the jobs may follow."""
        ...

    def said(self, answers: Iterable[Answer]) -> None:
        """What the worker says of the jobs, as much of it as came at once. Where `answers` raises, so does this, and
        what it gave before stands."""
        ...


class End(enum.Enum):
    """How carrying ended."""

    COMPLETE = enum.auto()
    """The whole answer was read."""
    STATUS = enum.auto()
    """Another status; see `judgement`."""
    GARBLED = enum.auto()
    """The answer cannot be read on."""
    LOST = enum.auto()
    """The connection broke after something may have reached the worker."""
    UNREACHABLE = enum.auto()
    """It broke before: the worker saw nothing."""
    CROWDED = enum.auto()
    """It had no connection to go out on: all are taken, or this process may open no more."""
    REFUSED = enum.auto()
    """The listener did not let it go out."""


class Ending(NamedTuple):
    """How carrying ended, and why."""

    end: End
    judgement: Judgement = Judgement.READ
    status: int = 0
    message: str = ""
    retry_after: str | None = None
    """The header as it came."""
    broke: str = ""
    """What broke the connection: see `kind_of`."""
    is_shared: bool = True
    """Whether every worker at that host and port is UNREACHABLE."""

    @property
    def brief(self) -> str:
        """How it ended, for logs: `message` may hold what the worker wrote, which only its jobs may show."""
        what = f"the worker answered {self.status}" if self.end is End.STATUS else self.end.name.lower()
        return f"{what}: {self.broke}" if self.broke else what


class Told(NamedTuple):
    """What became of a cancel that a worker was told of."""

    status: int
    """0: none came."""
    why: str
    """For logs: nothing that came over the wire."""


class Carrier(Protocol):
    """One way to a worker."""

    async def carry(self, sending: Sending, listener: Listener) -> Ending:
        """Carry the jobs. Never raises for what the network or the worker does.

        It takes as long as the worker does: the caller cancels when no job of it can still be waited for.
        """
        ...

    async def cancel(self, sending: Sending, job_id: str, *, at_ms: int, within_s: float) -> Told | None:
        """Tell the worker that a job of what it was sent was cancelled. None: it takes no such calls."""
        ...
