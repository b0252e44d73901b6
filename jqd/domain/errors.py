"""Errors that are not bugs. (Bugs crash with `assert` or `TypeError`.)

The docstring of each class says when it is raised and what the caller does then. A message says what went wrong, with
which object, why, and the next step; facts are also attributes of the exception.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self


class JqdError(Exception):
    """The base of all errors here. Catch a subclass, except where a request or the program ends."""


class ConfigError(JqdError):
    """A setting is wrong. The command stops before it changes anything; the user mends the setting."""


# ---------------------------------------------------------------- journal


class JournalError(JqdError):
    """Any error of the local journal."""


class JournalRefused(JournalError):
    """Records did not reach the disk, so they must not be acknowledged. The client tries again, or another daemon.

    `full`: the disk is full (status 507); otherwise it fails (503).
    """

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class JournalLocked(JournalError):
    """Another daemon uses this journal directory. Choose another directory or stop that daemon."""


class JournalVersion(JournalError):
    """A segment has a format that this jqd cannot read. It is left untouched; start the version that wrote it."""


class JournalStuck(JournalError):
    """The disk could not be read for seconds; or, both internal errors, a read made no progress, or a frame with good
    checksums cannot be decoded. The reader logs it and waits before the next try. Nothing is skipped."""


class JournalForked(JournalError):
    """Another copy of this journal is in use, or this directory is an old copy. The daemon takes a new journal id."""


class JournalDamaged(JournalError):
    """A segment has bytes that are neither good frames nor a torn tail. `jqd journal verify` names the places."""


# ---------------------------------------------------------------- store


class StoreError(JqdError):
    """Any error of the shared store."""


class StoreAway(StoreError):
    """The store does not answer, or answers that it cannot serve now. Try again later; the call may have had an effect.

    `cause`: the driver's message, which names the store's address: for logs and operators, so not in the message.
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
    """Another store, or a new life of the store, answers. Nothing was sent to it; `look` at it first."""


class StoreUnsettled(StoreAway):
    """The store is in recovery: daemons still give back what it lost, so it may lack the latest content of jobs.

    The caller tries again.
    """


class IdsUnknown(StoreAway):
    """The store is away, and only it knows whether a push's own ids are free: nothing was taken. Pushes without own ids
    are still accepted.

    `problem`: the `type` of the problem details, by which programs recognize this error.
    """

    problem = "urn:jqd:ids-unknown"


class SysidRefused(StoreAway):
    """This daemon died too often during recovery, while all others waited for it. It joins again after recovery."""


class StoreRefused(StoreError):
    """The store answered with an error that will not pass by itself. Health turns red; an operator has to look."""


class StoreMisplaced(StoreRefused):
    """A server's partition was made for another number or order of partitions: nothing is sent there."""


class StoreUnsafe(StoreRefused):
    """The store is set up so that it would lose jobs. The message says which setting and how to mend it."""


class PositionMismatch(StoreError):
    """The store has applied this journal up to another position than the caller thinks.

    If `stored` is the end that was sent, only the reply was lost. If it is less, the store rolled back: go on there.
    """

    def __init__(self, message: str, *, stored: int) -> None:
        super().__init__(message)
        self.stored = stored


class StaleOwner(StoreError):
    """This daemon's epoch is over, as others took it for dead. Stop all jobs in flight and reserve a new epoch."""


class SysidTaken(StoreError):
    """Another living daemon of this store has the same sysid: the data directory is a clone. Start with a new one."""


# ---------------------------------------------------------------- runner


class AnswerGarbled(JqdError):
    """A worker's answer cannot be read further. Outcomes that were read before count."""


# ---------------------------------------------------------------- service


class Fault(NamedTuple):
    """One fault of a request."""

    pointer: str
    """JSON pointer to the wrong value; empty: the whole body."""
    detail: str
    place: int | None = None
    """The job's place in the request's array; None: the job came alone."""


class ServiceError(JqdError):
    """Any refusal of a client's request. Nothing was done, unless the message says otherwise.

    `faults`: what is wrong with which part of the request, if that is known.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def at(cls, pointer: str, why: str) -> Self:
        """Return the error for a single fault, with its text as the message."""
        return cls(why, [Fault(pointer, why)])


class Unreadable(ServiceError):
    """The body as a whole cannot be decoded, or is no job and no array of jobs. The client sends it in another form."""


class Invalid(ServiceError):
    """A field, a filter, a cursor or a registration has a value that is not allowed. The client mends it."""


class TooLarge(ServiceError):
    """A job, an array of jobs, or a result is too large. The client sends less at once, or stores data elsewhere."""


class Incomplete(ServiceError):
    """A push was to be taken as a whole or not at all, and some of its jobs are wrong. The client mends these or leaves
    them out.
    """


class NotFound(ServiceError):
    """There is no such job, worker or attempt, or no longer. Asking again does not help."""


class Denied(ServiceError):
    """The caller may not do this. With another token it may be allowed."""


class Conflict(ServiceError):
    """The state of the job or setting does not allow the request, or another job has the id. The client looks first."""


class NotYet(ServiceError):
    """The job is on its way into the store, or a change is recorded but not confirmed. The client asks again soon."""


class Overtaken(NotYet):
    """Another request changed the job at the same moment, and nothing is recorded. The caller reads the job again."""


class Closed(ServiceError):
    """Pushes are refused now: the daemon shuts down, or its disk fails or is full. Push to another daemon, or later.

    `full`: the disk is full. `problem`: the `type` of the problem details, by which programs know that nothing was
    taken.
    """

    problem = "urn:jqd:closed"

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class Overloaded(ServiceError):
    """Too much is waiting already, or a quota is spent. Nothing was taken; ask again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Interrupted(ServiceError):
    """One of many changes failed, because of `cause`, after `changed` jobs were changed. Repeat the request."""

    def __init__(self, changed: int, cause: JqdError) -> None:
        super().__init__(f"{changed} jobs were changed before this: {cause}")
        self.changed = changed
        self.cause = cause
