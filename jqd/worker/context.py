"""What a job function may know of its attempt, and what it may raise to say how the attempt ended."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jqd.words.dates import date_of
from jqd.words.units import Duration, duration_s


@dataclass(slots=True)
class Context:
    """One attempt of one job, as `current()` tells it."""

    job_id: str
    name: str
    attempt: int
    """1 for the first."""
    max_retry: int
    """Attempts allowed after the first failed."""
    ends_at_ms: int
    """See `deadline`."""
    asked: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)
    """Asks for `cancelled`; the worker's own."""

    @property
    def deadline(self) -> datetime:
        """When the worker gives up waiting for this attempt, UTC, by the worker's own clock."""
        return date_of(self.ends_at_ms)

    @property
    def is_last(self) -> bool:
        """Whether a failure now leaves no retry."""
        return self.attempt > self.max_retry

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the job meanwhile. A plain function looks now and then and raises `Cancelled`;
        an async one need not look: its loop stops it."""
        return self.asked()


at_work: ContextVar[Context | None] = ContextVar("jqd_job", default=None)
"""The attempt that this thread or task runs. A worker sets it."""


def current() -> Context:
    """The attempt that runs here, in this thread or task. Raises RuntimeError where none does."""
    context = at_work.get()
    if context is None:
        raise RuntimeError("no job runs here: jqd.current() is for a job's function while a worker calls it")
    return context


class Retry(Exception):
    """Raise it when the job cannot be done now but may be later: this attempt fails, and another one follows.

    `after`: how long until the next attempt, in seconds or like "20s"; None leaves the wait to the daemon's back-off.
    """

    after: float | None = None  # also of a class derived from this that does not call __init__

    def __init__(self, after: Duration | None = None, message: str = "") -> None:
        super().__init__(message or "the job asked for another attempt")
        self.after = None if after is None else _from_now(after, "Retry(after=...)")


class Snooze(Exception):
    """Raise it when it is too early for the job: it is put off, and this costs no attempt.

    `after`: how long, in seconds or like "1m"; a second at least. A job that was put off 10,000 times spends an attempt
    each time from then on, so that none goes on for ever unseen.
    """

    after: float = 60.0  # also of a class derived from this that does not call __init__

    def __init__(self, after: Duration, message: str = "") -> None:
        super().__init__(message or "the job put itself off")
        self.after = _from_now(after, "Snooze(...)")


class Cancelled(Exception):
    """Raise it when `current().cancelled` is true and the work was left undone: the job ends without another attempt.

    If the function returns in spite of the cancel, it has done its work, and its job succeeds.
    """


class Failed(Exception):
    """Raise it when the job can never succeed, by its data for example: it ends as failed, without retries.

    `error`: any MessagePack value for programs; None repeats the message.
    """

    error: Any = None  # as above

    def __init__(self, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.error = error


def _from_now(after: Duration, what: str) -> float:
    after_s = duration_s(after)
    if not 0 <= after_s < float("inf"):
        raise ValueError(f"{what} takes seconds from now, 0 or more; got {after!r}")
    return after_s
