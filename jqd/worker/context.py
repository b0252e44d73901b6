"""What a job function sees of its attempt, and the exceptions by which it ends it."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from jqd.domain.dates import date_of
from jqd.domain.followers import FOLLOWERS_MAX
from jqd.domain.units import Duration, duration_s
from jqd.worker.attempt_output import AttemptOutput

if TYPE_CHECKING:
    from jqd.worker.batch import Item

PROGRESS_LENGTH_MAX = 200  # characters of its message: as daemons take it
P = ParamSpec("P")


class Follower(Protocol[P]):
    """What can follow a job: another job, with or without options."""

    def following(self, *args: P.args, **kwargs: P.kwargs) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Context:
    """One attempt of one job, as `current()` returns it."""

    job_id: str
    name: str
    attempt: int
    """1 for the first."""
    max_retry: int
    """Attempts allowed after the first failed."""
    ends_at_ms: int
    """See `deadline`."""
    traceparent: str = ""
    """W3C Trace Context, for calls that are to be seen in the job's trace."""
    of: "Item" = field(repr=False, compare=False, kw_only=True)
    """The worker's own."""

    @property
    def deadline(self) -> datetime:
        """Return when the worker gives this attempt up, in UTC, by the worker's own clock."""
        return date_of(self.ends_at_ms)

    @property
    def is_last(self) -> bool:
        """Return whether a failure now leaves no retry."""
        return self.attempt > self.max_retry

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the job meanwhile. A plain function looks now and then and raises `Cancelled`;
        an async one need not look: its loop stops it."""
        return self.of.cancelled

    @property
    def output(self) -> AttemptOutput:
        return self.of.speak()

    def progress(self, done: float | None = None, message: str = "") -> None:
        """Say how far the job is, from 0 to 1, or in a few words: `jqd get` shows it while the job runs.

        It costs nothing to call it often: once a second the worker sends the latest.
        """
        if done is not None and not 0 <= done <= 1:
            raise ValueError(f"progress goes from 0 to 1; got {done!r}")
        self.output.set_progress(done, message[:PROGRESS_LENGTH_MAX])

    def log(self, message: str) -> None:
        """A line for the worker's log, with the job's id and name. It is kept with the attempt if that fails."""
        self.output.log_line(message)

    def push(self, job: Follower[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Let a job follow this one: it exists exactly when this one's success counts.

            jqd.current().push(send, "ann")                          jqd.current().push(send.options(delay="5m"), "ann")

        If this job runs twice, only followers of the success that counts exist. Raises ValueError for more than 500.
        A job that does not depend on this one's success is pushed with its own `push`.
        """
        follows = self.output.follows
        if len(follows) == FOLLOWERS_MAX:
            raise ValueError(f"{FOLLOWERS_MAX} jobs follow job {self.job_id} already; let one of them push the others")
        follows.append(job.following(*args, **kwargs))


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
