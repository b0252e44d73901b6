"""What may go wrong between a pusher and its daemon."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jqd.domain.errors import ConfigError, JqdError


class ItemError(msgspec.Struct, frozen=True):
    """What is wrong with one field, or with one job of a list."""

    detail: str
    index: int | None = None
    """Which job of the list that was pushed, from 0; None when one job was."""
    pointer: str = ""
    """Which field, as a JSON pointer."""


class JqdClientError(JqdError):
    """Root of a `Client`'s errors. Raised itself for an answer that this version does not understand.

    `status`: of the answer, 0 when there was none. `earlier`: of a refusal, the error of an earlier try, with another
    daemon perhaps, which may have taken the request.
    """

    earlier: "JqdClientError | None" = None

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class WrongUrl(JqdClientError, ConfigError):
    """What a `Client` was given, or `JQD_URL` holds, cannot be a daemon's URL. Nothing was sent."""


class WrongToken(JqdClientError, ConfigError):
    """What `JQD_TOKEN_FILE` names cannot be read or is empty, or no header carries the token. Nothing was sent."""


class Unreachable(JqdClientError):
    """No answer came: no daemon there, or the connection broke.

    `sent`: whether the request may have arrived. False means that nothing happened and trying again is safe; True that
    a push may have been taken: push with a `job_id` of your own and repeat it, and it counts once.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ClientClosed(JqdClientError):
    """The client was closed, by another part of the program; make another. A push that was under way may be taken."""


class NotFound(JqdClientError):
    """There is no such job, or it ended so long ago that it is forgotten."""


class Conflict(JqdClientError):
    """The `job_id` belongs to a job with other content (use replace=True or another id), or the job has ended."""


class Forbidden(JqdClientError):
    """The daemon wants a token, or another one."""


class Invalid(JqdClientError):
    """The daemon refused the request for what it says. `errors` names the fields."""

    def __init__(self, message: str, *, status: int, errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message, status=status)
        self.errors = list(errors)


class TooLarge(JqdClientError):
    """The request is bigger than the daemon takes. Push fewer jobs at once, or put the data elsewhere."""


class Unavailable(JqdClientError):
    """The daemon cannot take this now. `retry_after`: seconds it asks to wait, or None.

    `maybe_taken`: it does not say that it took nothing of a push which the store has to confirm: with an id, which the
    client may have made, a unique key or a group. Push again only with an id of your own or a key. Where it is False
    nothing of a push was taken. `ids_unknown`: only the store knows whose the ids of this push are, and it is away. No
    daemon that was asked can have taken it, and without ids one would. `closed`: the daemon takes no pushes now, for it
    stops or its disk fails; it took nothing.
    """

    maybe_taken = False

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retry_after: float | None,
        ids_unknown: bool = False,
        closed: bool = False,
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after
        self.ids_unknown = ids_unknown
        self.closed = closed


class TimedOut(JqdClientError):
    """What was waited for did not happen in time. `pending`: the ids of the jobs that have not ended."""

    def __init__(self, message: str, *, pending: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.pending = list(pending)


class JobFailed(JqdClientError):
    """A result was asked of a job that ended without one: failed or cancelled. `info` is the `JobInfo`."""

    def __init__(self, message: str, *, info: Any) -> None:
        super().__init__(message)
        self.info = info


class NoResult(JqdClientError):
    """The job succeeded, and its result was not kept: nobody asked for that, or it was too large."""


class LessSafe(JqdClientError):
    """Jobs were taken, but are less safe than was asked for: the store was away. They need not be pushed again.

    `job_ids`: all of the push, in order. `ack`: the least level that was reached.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str], ack: str) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.ack = ack


class PartlyPushed(JqdClientError):
    """Of the jobs of one `push_many` some were taken and some were not.

    `job_ids`: in the order of the jobs, None for those not taken. `errors`: why, for those the daemon refused.
    When it ended in between, `__cause__` says how, and by that the jobs sent last may have been taken all the same.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str | None], errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.errors = list(errors)


class BufferFull(JqdClientError):
    """A buffer had no room for another job in the time that a push waits: its daemon is away, or too slow. Nothing was
    taken of this push."""


class NotPushed(JqdClientError):
    """Buffered jobs are not known to be taken. `errors`: the id of each → what its push met.

    After `Unreachable`, `TimedOut` or `Unavailable` a daemon may have taken one all the same: pushed again under the
    same id, with the same content, it counts once.
    """

    def __init__(self, message: str, *, errors: Mapping[str, JqdClientError]) -> None:
        super().__init__(message)
        self.errors = dict(errors)


def more_doubtful(before: JqdClientError | None, now: JqdClientError) -> JqdClientError:
    """Return which error of two tries holds for both: one after which something may be taken, else one that says how
    the push is taken all the same, else the later one."""
    return before if before is not None and _weight(before) > _weight(now) else now


def refused_after(earlier: JqdClientError | None, refusal: JqdClientError) -> JqdClientError:
    """Return the refusal of a request; it says so where an earlier try may have taken it."""
    if earlier is not None and _doubt(earlier):
        refusal.args = (f"{refusal}; but an earlier try may have been taken: {earlier}",)
        refusal.earlier = earlier
    return refusal


def took_nothing(error: JqdClientError) -> bool:
    """Return whether a daemon that gave this answer took nothing, so that another may be asked."""
    return not _doubt(error)


def _weight(error: JqdClientError) -> tuple[int, bool]:
    return _doubt(error), isinstance(error, Unavailable) and error.ids_unknown


def _doubt(error: BaseException | None) -> int:
    """0: it took nothing. 1: it may have. 2: the error says so by its type alone."""
    match error:
        case PartlyPushed():
            return _doubt(error.__cause__)
        case Unreachable(sent=False) | Unavailable(status=429):
            return 0
        case Unavailable(ids_unknown=ids_unknown, closed=closed) if ids_unknown or closed:
            return 0
        case Unavailable():
            return 1
    return 2
