"""Errors that are not bugs. (Bugs crash with `assert` or `TypeError`.)

The docstring of each class says when it is raised and what the caller does then. A message says what went wrong, with
which object, why, and the next step; facts are also attributes of the exception.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self


class JqdError(Exception):
    """The base class of all errors of jqd. Catch a subclass; only code at the outer end of a request or of the program
    catches this one."""


class ConfigError(JqdError):
    """A setting is wrong. The command stops before it changes anything; the user mends the setting."""


# ---------------------------------------------------------------- journal


class JournalError(JqdError):
    """Any error of the local journal."""


class JournalRefused(JournalError):
    """Records did not reach the disk, so they must not be acknowledged. The client tries again, or uses another daemon.

    `full`: whether the disk is full (status 507). Otherwise writing fails for another reason (status 503).
    """

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class JournalLocked(JournalError):
    """Another daemon uses this journal directory. Choose another directory or stop that daemon."""


class JournalVersion(JournalError):
    """A segment has a format that this jqd cannot read. It is left untouched; start the version that wrote it."""


class JournalStuck(JournalError):
    """The journal could not be read, because the disk failed for seconds. Or, which is an internal error, a read made
    no progress, or a frame with good checksums cannot be decoded. The reader logs it, waits, and tries again. No record
    is skipped."""


class JournalForked(JournalError):
    """Another copy of this journal is in use, or this directory is an old copy. The daemon takes a new journal id."""


class JournalDamaged(JournalError):
    """A segment has bytes that are neither valid frames nor the cut end of the last write. `jqd journal verify` shows
    the positions."""


# ---------------------------------------------------------------- store


class StoreError(JqdError):
    """Any error of the shared store."""


class StoreAway(StoreError):
    """The store does not answer, or answers that it cannot serve now. Try again later; the call may have had an effect.

    `cause`: the driver's message. It contains the store's address, so it is shown only in logs and to operators, and is
    not part of this error's message.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause

    @property
    def in_full(self) -> str:
        return f"{self}: {self.cause}" if self.cause else str(self)


class StoreFull(StoreAway):
    """The store's server is out of memory. Delete something first, or raise its `maxmemory`."""


class StoreChanged(StoreAway):
    """The store that answers is not the one of before, or it is the same one and has lost its data. Nothing was sent to
    it. Call `Store.look` before using it again."""


class StoreUnsettled(StoreAway):
    """The store is in recovery: daemons still send it the jobs that it lost, so it may not have the latest content of a
    job.

    The caller tries again.
    """


class IdsUnknown(StoreAway):
    """A push chose ids for its jobs, and the store, which alone knows whether these ids are free, is away. Nothing was
    taken. Pushes that choose no ids are still accepted.

    `problem`: the `type` of the problem details, by which programs recognize this error.
    """

    problem = "urn:jqd:ids-unknown"


class SysidRefused(StoreAway):
    """The store does not let this daemon join, because it died too often while all other daemons waited for it to
    recover. They go on without it. It may join again after a minute, or as soon as recovery is over."""


class StoreRefused(StoreError):
    """The store answered with an error that will not pass by itself. The daemon reports itself as unhealthy; an
    operator has to look."""


class StoreMisplaced(StoreRefused):
    """A server has a partition that was created for a store with another number or order of partitions. Nothing is sent
    there."""


class StoreUnsafe(StoreRefused):
    """The store is set up so that it would lose jobs. The message says which setting and how to mend it."""


class PositionMismatch(StoreError):
    """The store has applied this journal up to another position than the caller assumed.

    If `stored` is the position after the records that were just sent, they were applied and only the reply was lost. If
    it is less than the position before them, the store was rolled back: send the records from `stored` on again.
    """

    def __init__(self, message: str, *, stored: int) -> None:
        super().__init__(message)
        self.stored = stored


class StaleOwner(StoreError):
    """This daemon's epoch (the number of its membership in the store) has ended, because others took it for dead. The
    daemon stops all its jobs and joins again with a new epoch."""


class SysidTaken(StoreError):
    """Another living daemon of this store has the same sysid: the data directory is a clone. Start with a new one."""


# ---------------------------------------------------------------- runner


class AnswerGarbled(JqdError):
    """A worker's answer cannot be read from some point on. Outcomes that were read before that point count."""


# ---------------------------------------------------------------- service


class Fault(NamedTuple):
    """One thing that is wrong with a request."""

    pointer: str
    """JSON pointer to the wrong value; empty: the whole body."""
    detail: str
    place: int | None = None
    """The index of the job in the request's array; None: the request has a single job."""


class ServiceError(JqdError):
    """A refusal of a client's request. Nothing was done, unless the message says otherwise.

    `faults`: what is wrong with which part of the request, if that is known.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def at(cls, pointer: str, why: str) -> Self:
        """Return the error for one fault, at the JSON pointer `pointer`, with `why` as its message."""
        return cls(why, [Fault(pointer, why)])


class Unreadable(ServiceError):
    """The body as a whole cannot be decoded, or is no job and no array of jobs. The client sends it in another form."""


class Invalid(ServiceError):
    """A field, a filter, a cursor or a registration has a value that is not allowed. The client mends it."""


class TooLarge(ServiceError):
    """A job, an array of jobs, or a result is too large. The client sends less at once, or stores data elsewhere."""


class Incomplete(ServiceError):
    """A push was to be taken as a whole or not at all, and some of its jobs are invalid. The client corrects these jobs
    or leaves them out."""


class NotFound(ServiceError):
    """The job, worker or attempt does not exist, or does not exist any longer. Asking again does not help."""


class Denied(ServiceError):
    """The caller lacks the right for this request. With another token it may be allowed."""


class Conflict(ServiceError):
    """The state of the job or setting does not allow the request, or another job has the same id. The client reads the
    present state first."""


class NotYet(ServiceError):
    """The job is not in the store yet, or a change of it is recorded but not confirmed. The client asks again soon."""


class Overtaken(NotYet):
    """Another request changed the job at the same moment, so nothing was recorded. The client reads the job again."""


class Closed(ServiceError):
    """Pushes are refused for now: the daemon shuts down, or its disk fails or is full. The client pushes to another
    daemon, or later.

    `full`: whether the disk is full. `problem`: the `type` of the problem details, by which programs know that nothing
    was taken.
    """

    problem = "urn:jqd:closed"

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class Overloaded(ServiceError):
    """Too many jobs or requests are waiting already, or a quota is used up. Nothing was taken. The client asks again
    after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Interrupted(ServiceError):
    """A request to change many jobs failed because of `cause`, after it had changed `changed` jobs. The client repeats
    the request."""

    def __init__(self, changed: int, cause: JqdError) -> None:
        super().__init__(f"{changed} jobs were changed before this: {cause}")
        self.changed = changed
        self.cause = cause
