"""What can go wrong that is not a bug. Bugs crash by `assert` or `TypeError` instead.

Every class says when it comes and what the caller does about it. A message says what, which one, why, and the next
step; facts are attributes of the exception, too.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self


class JqdError(Exception):
    """Root of all errors that are no bugs. Catch a child of it, except at the very edge."""


class ConfigError(JqdError):
    """A setting is wrong. The command stops before anything is touched; the user mends the setting."""


# ---------------------------------------------------------------- journal


class JournalError(JqdError):
    """Any error of the local journal."""


class JournalRefused(JournalError):
    """What was written did not reach the disk: nothing may be acknowledged. The pusher tries again or elsewhere.

    `full` tells a full disk (507, weather that passes) from a failing one (503).
    """

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class JournalLocked(JournalError):
    """Another daemon lives in this journal directory. Choose another directory or stop that daemon."""


class JournalVersion(JournalError):
    """A segment has a format that this jqd does not read. It is left untouched; start the version that wrote it."""


class JournalStuck(JournalError):
    """A read made no progress, or a frame with good checksums cannot be decoded: internal errors. The reader logs it
    and waits before the next try. Nothing is skipped."""


class JournalForked(JournalError):
    """Another copy of this journal is in use, or this directory is an older copy: go on under a new journal id."""


class JournalDamaged(JournalError):
    """A segment holds bytes that are neither good frames nor a torn tail. `jqd journal verify` names the places."""


# ---------------------------------------------------------------- store


class StoreError(JqdError):
    """Any error of the shared store."""


class StoreAway(StoreError):
    """The store does not answer, or answers that it cannot serve now. Try again later; nothing was promised.

    `cause`: the driver's words, which name the store's address: for logs and who runs jqd, and not in the message.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause

    @property
    def in_full(self) -> str:
        return f"{self}: {self.cause}" if self.cause else str(self)


class StoreFull(StoreAway):
    """The server has no memory for what it was to keep. Something must be deleted first, or its `maxmemory` raised."""


class StoreChanged(StoreAway):
    """Another store, or another life of it, answers. Nothing was sent to it: `look` at it first."""


class StoreUnsettled(StoreAway):
    """Daemons still give the store back what it lost: it does not know yet all ids and their latest content.

    The caller tries again.
    """


class IdsUnknown(StoreAway):
    """Only the store knows whose the ids of a push are, and it is away: nothing was taken. A push without ids goes on.

    `problem`: the type of the problem document that says so, by which a client knows it.
    """

    problem = "urn:jqd:ids-unknown"


class SysidRefused(StoreAway):
    """This daemon died too often during recovery, while all others waited for it. It rejoins after them."""


class StoreRefused(StoreError):
    """The store answered with an error that trying again will not mend. Health turns red; an operator looks."""


class StoreMisplaced(StoreRefused):
    """A server's partition was begun with another number or order of partitions: nothing is sent there."""


class StoreUnsafe(StoreRefused):
    """The store is set up so that it would lose jobs. The message says which setting and how to mend it."""


class PositionMismatch(StoreError):
    """The store has applied another position of this journal than the caller thinks.

    `stored` equal to the end that was sent means a lost reply: all is done. Smaller: the store rolled back, seek there.
    """

    def __init__(self, message: str, *, stored: int) -> None:
        super().__init__(message)
        self.stored = stored


class StaleOwner(StoreError):
    """This daemon's epoch was burnt: others took it for dead. Stop all jobs in flight and reserve a new epoch."""


class SysidTaken(StoreError):
    """Another living daemon uses this sysid in this store: a cloned data directory. Start with a new one."""


# ---------------------------------------------------------------- runner


class AnswerGarbled(JqdError):
    """A worker's answer cannot be read from here on. What was read before stands."""


# ---------------------------------------------------------------- service


class Fault(NamedTuple):
    """One fault of a request."""

    pointer: str
    """JSON pointer to the wrong value; empty: the whole body."""
    detail: str
    place: int | None = None
    """Which of several jobs; None: there is one."""


class ServiceError(JqdError):
    """Any refusal of a client's request. Nothing was done, unless the message says so.

    `faults`: what is wrong with which part of it, where that can be said.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def at(cls, pointer: str, why: str) -> Self:
        """Return the error that is one fault: what is wrong there is all there is to say."""
        return cls(why, [Fault(pointer, why)])


class Unreadable(ServiceError):
    """The body as a whole is no job, or no list of jobs. The client sends it in another form."""


class Invalid(ServiceError):
    """A field, a filter, a cursor or a registration has a value that it cannot have. The client mends it."""


class TooLarge(ServiceError):
    """A job, a list of them or a result is above a limit of size. The client sends less at once, or stores it apart."""


class Incomplete(ServiceError):
    """The push was to be taken whole or not at all, and some jobs cannot be taken. The client mends or leaves out
    those.
    """


class NotFound(ServiceError):
    """There is no such job, worker or attempt, or no longer. Asking again is in vain."""


class Denied(ServiceError):
    """The caller may not do this. Another key or another caller may."""


class Conflict(ServiceError):
    """The present state of the job does not allow it, or its id has other content. The client looks at the job."""


class NotYet(ServiceError):
    """The job is on its way, or the change is recorded and not confirmed. The client asks again in a moment."""


class Overtaken(NotYet):
    """Another request changed the job in that moment, and nothing is recorded. The caller reads the job again."""


class Closed(ServiceError):
    """No pushes are taken now: the daemon shuts down, or its disk fails or is full. Push to another daemon, or later.

    `full`: it is the disk that is full. `problem`: the type of the problem document, by which a client knows that
    nothing was taken.
    """

    problem = "urn:jqd:closed"

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class Overloaded(ServiceError):
    """Too much waits already, or a quota is spent. Nothing was taken: the client asks again
    after `retry_after_s` seconds.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Interrupted(ServiceError):
    """One of many changes failed, for the reason in `cause`, after `changed` jobs were changed.

    The client repeats the request.
    """

    def __init__(self, changed: int, cause: JqdError) -> None:
        super().__init__(f"{changed} jobs were changed before this: {cause}")
        self.changed = changed
        self.cause = cause
