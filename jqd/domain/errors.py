"""What can go wrong that is not a bug. Bugs crash by `assert` or `TypeError` instead.

Every class says when it comes and what the caller does about it. A message says what, which one, why, and the next
step; facts are attributes of the exception, too.
"""

from collections.abc import Sequence
from typing import NamedTuple


class JqdError(Exception):
    """Root of all that is no bug. Catch a child of it, never this, except at the very edge."""


class ConfigError(JqdError):
    """A setting is wrong. The command stops before anything is touched; the user mends the setting."""


# ---------------------------------------------------------------- journal


class JournalError(JqdError):
    """Something about the local journal."""


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
    """A read did not go on, or a frame whose checksums hold cannot be decoded: internal errors.

    Who reads says so and waits before the next try. Nothing is passed over.
    """


class JournalForked(JournalError):
    """Another copy of this journal is in use, or this directory is an older copy: go on under a new journal id."""


class JournalDamaged(JournalError):
    """A segment holds bytes that are neither good frames nor a torn tail. `jqd journal verify` names the places."""


# ---------------------------------------------------------------- store


class StoreError(JqdError):
    """Something about the shared store."""


class StoreAway(StoreError):
    """The store does not answer, or answers that it cannot serve now. Try again later; nothing was promised."""


class StoreChanged(StoreAway):
    """Another store, or another life of it, answers. Nothing was sent to it: `look` at it first."""


class StoreUnsettled(StoreAway):
    """Daemons still give the store back what it lost: it does not know yet whose an id is, nor its latest content."""


class SysidRefused(StoreAway):
    """This daemon died too often during recovery, while all others waited for it. It comes back behind them."""


class StoreRefused(StoreError):
    """The store answered with an error that trying again will not mend. Health turns red; an operator looks."""


class StoreMisplaced(StoreRefused):
    """This was begun as another partition of the store, or of another number of them: nothing is sent there."""


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
    """This daemon's epoch was burnt: others took it for dead. Stop all work in hand and reserve a new epoch."""


class SysidTaken(StoreError):
    """Another living daemon uses this sysid in this store: a cloned data directory. Start with a new one."""


# ---------------------------------------------------------------- runner


class AnswerGarbled(JqdError):
    """A worker's answer cannot be read from here on. What was read before it stands."""


class Foreign(JqdError):
    """A request that may be a foreign page's, refused with `status` before it is read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# ---------------------------------------------------------------- service


class Fault(NamedTuple):
    """One thing that is wrong with a request."""

    pointer: str
    """Where, as a JSON pointer; empty: the whole."""
    detail: str
    place: int | None = None
    """Which of several jobs; None: there is one."""


class ServiceError(JqdError):
    """Something about what a client asked for. Nothing was done, unless the message says so.

    `faults`: what is wrong with which part of it, where that can be said.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = faults


class Unreadable(ServiceError):
    """What came is no job, or no list of jobs, as a whole. The client sends it in another form."""


class Invalid(ServiceError):
    """A field, a filter, a cursor or a registration has a value that it cannot have. The client mends it."""


class TooLarge(ServiceError):
    """A job, a list of them or a result is above a limit of size. The client sends less at once, or stores it apart."""


class Incomplete(ServiceError):
    """All or nothing was asked for, and some jobs cannot be taken. The client mends or leaves out those."""


class NotFound(ServiceError):
    """There is no such job, worker or attempt, or not any more. To ask again is in vain."""


class Denied(ServiceError):
    """Who asks may not do this, though it could be done. With another key, or by somebody else."""


class Conflict(ServiceError):
    """How a job stands now does not allow it, or another content has its id. The client looks at the job."""


class NotYet(ServiceError):
    """It is on its way, or recorded and not confirmed. The client asks again in a moment."""


class Closed(ServiceError):
    """No pushes are taken now: the daemon shuts down, or its disk fails or is full. Push to another daemon, or later.

    `full`: it is the disk that is full.
    """

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class Overloaded(ServiceError):
    """More waits already than can be served, or more is sent than is fair. Nothing was taken: the client asks again
    after `retry_after_s` seconds.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Interrupted(ServiceError):
    """One of many changes failed, for the reason in `cause`, after `changed` jobs were changed. Ask for it again."""

    def __init__(self, changed: int, cause: JqdError) -> None:
        super().__init__(f"{changed} jobs were changed before this: {cause}")
        self.changed = changed
        self.cause = cause
