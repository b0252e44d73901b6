"""What a job function sees of its attempt, `current()`, and the exceptions with which a function can end it."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

import msgspec

from jqd.domain.dates import date_of
from jqd.domain.followers import FOLLOWERS_MAX
from jqd.domain.units import Duration, duration_s
from jqd.worker.attempt_output import AttemptOutput, encodable

if TYPE_CHECKING:
    from jqd.worker.batch import Item

PROGRESS_LENGTH_MAX = 200  # characters of a progress message that daemons take
P = ParamSpec("P")


class Follower(Protocol[P]):
    """A job, with or without options for its push, as `Context.push` takes it."""

    def following(self, *args: P.args, **kwargs: P.kwargs) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Context:
    """One attempt of one job, as `current()` returns it."""

    job_id: str
    name: str
    attempt: int
    """Number of this attempt; the first is 1."""
    max_retry: int
    """Retries allowed after the first attempt."""
    ends_at_ms: int
    """When this attempt times out, in milliseconds since 1970; see `deadline`."""
    traceparent: str = ""
    """W3C Trace Context of the job, to pass on to calls that it makes."""
    of: "Item" = field(repr=False, compare=False, kw_only=True)
    """The worker's own record of the attempt. Job functions must not use it."""

    @property
    def deadline(self) -> datetime:
        """Return when this attempt times out, in UTC, by the worker's own clock."""
        return date_of(self.ends_at_ms)

    @property
    def is_last(self) -> bool:
        """Whether no retry is left if this attempt fails."""
        return self.attempt > self.max_retry

    @property
    def cancelled(self) -> bool:
        """Whether the job has been cancelled. A plain function should check this now and then, and raise `Cancelled`.
        An async function need not check: its loop cancels it."""
        return self.of.cancelled

    @property
    def output(self) -> AttemptOutput:
        return self.of.get_output()

    def progress(self, done: float | None = None, message: str = "") -> None:
        """Report progress: `done` from 0 to 1, or a few words. `jqd get` shows it while the job runs.

        You may call it often: once a second the worker sends the latest.
        """
        share = None if done is None else float(done)  # a plain one: numpy's cannot be encoded
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"progress goes from 0 to 1; got {done!r}")
        self.output.set_progress(share, encodable(message[:PROGRESS_LENGTH_MAX])[:PROGRESS_LENGTH_MAX])

    def log(self, message: str) -> None:
        """Write a line to the worker's log, with the job's id and name. The job keeps the last lines that its last
        attempt logged or printed."""
        self.output.log_line(message)

    def push(self, job: Follower[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Push a job that follows this one: in the step that records this job's success. If this job fails, the
        follower is never pushed.

            jqd.current().push(send, "ann")
            jqd.current().push(send.options(delay="5m"), "ann")

        If this job runs twice, only the followers of the success that counts are pushed. Raises ValueError for more
        than 500 followers. For a job that does not depend on this job's success use its own `push`.
        """
        follows = self.output.follows
        if len(follows) == FOLLOWERS_MAX:
            raise ValueError(f"{FOLLOWERS_MAX} jobs follow job {self.job_id} already; let one of them push the others")
        # Encoded here, so that an option which cannot be is raised where it was given.
        follows.append(msgspec.Raw(msgspec.msgpack.encode(job.following(*args, **kwargs))))


at_work: ContextVar[Context | None] = ContextVar("jqd_job", default=None)
"""The attempt that runs in this thread or task. The worker sets it."""


def current() -> Context:
    """Return the attempt that runs in this thread or task. Raises RuntimeError outside a job."""
    context = at_work.get()
    if context is None:
        raise RuntimeError("no job runs here: jqd.current() is for a job's function while a worker calls it")
    return context


class Retry(Exception):
    """Raise this if the job cannot be done now but may be later: this attempt fails, and another one follows.

    `after`: how long until the next attempt, in seconds or like "20s"; None leaves the wait to the daemon's back-off.
    """

    after: Duration | None = None  # for derived classes that do not call __init__

    def __init__(self, after: Duration | None = None, message: str = "") -> None:
        super().__init__(message or "the job asked for another attempt")
        self.after = None if after is None else from_now(after, "Retry(after=...)")


class Snooze(Exception):
    """Raise this if it is too early for the job: it is tried again later, and this attempt is not counted.

    `after`: how long until then, in seconds or like "1m"; at least a second. From a job's 10,000th snooze on, each
    counts as an attempt, so that no job snoozes for ever unnoticed.
    """

    after: Duration = 60.0  # for derived classes that do not call __init__

    def __init__(self, after: Duration, message: str = "") -> None:
        super().__init__(message or "the job put itself off")
        self.after = from_now(after, "Snooze(...)")


class Cancelled(Exception):
    """Raise this if `current().cancelled` is true and the work was left undone: the job ends without another attempt.

    If the function returns in spite of the cancel, its job succeeds.
    """


class Failed(Exception):
    """Raise this if the job can never succeed, because of its data for example: it ends as failed, without retries.

    `error`: any MessagePack value for programs; None repeats the message.
    """

    error: Any = None  # for derived classes that do not call __init__

    def __init__(self, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.error = error


def from_now(after: Duration, what: str) -> float:
    """Return a wait of a job's author in seconds. `what`: where it was given, for the message. Raises ValueError."""
    after_s = float(duration_s(after))
    if not 0 <= after_s < float("inf"):
        raise ValueError(f"{what} takes seconds from now, 0 or more; got {after!r}")
    return after_s
