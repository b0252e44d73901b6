"""What a job function may know of its attempt, and what it may raise to say how the attempt ended."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt of one job. A function asks for it by a second parameter annotated `Context`."""

    job_id: str
    name: str
    attempt: int
    """1 for the first."""
    max_retry: int
    """Attempts allowed after the first failed."""
    deadline: datetime
    """When the worker gives up waiting for this attempt, UTC, by the worker's own clock."""
    asked: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)
    """Asks for `cancelled`; the worker's own."""

    @property
    def is_last(self) -> bool:
        """Whether a failure now leaves no retry."""
        return self.attempt > self.max_retry

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the job meanwhile. A plain function looks now and then and raises `Cancelled`;
        an async one need not look: trio stops it."""
        return self.asked()


class Retry(Exception):
    """Raise it when the job cannot be done now but may be later: this attempt fails, and another one follows.

    `after`: seconds until the next attempt; None leaves the wait to the daemon's back-off.
    """

    after: float | None = None  # also of a class derived from this that does not call __init__

    def __init__(self, after: float | None = None, message: str = "") -> None:
        if after is not None and not 0 <= after < float("inf"):
            raise ValueError(f"Retry(after=...) takes seconds from now, 0 or more; got {after!r}")
        super().__init__(message or "the job asked for another attempt")
        self.after = after


class Cancelled(Exception):
    """Raise it when `Context.cancelled` is true and the work was left undone: the job ends without another attempt.

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
