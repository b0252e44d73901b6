"""What may go wrong between a pusher and its daemon."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jqd.domain.errors import ConfigError, JqdError


class ItemError(msgspec.Struct, frozen=True):
    """An error in one field, or in one job of a list."""

    detail: str
    index: int | None = None
    """Index of the job in the pushed list, from 0; None when one job was pushed."""
    pointer: str = ""
    """The field, as a JSON pointer."""


class JqdClientError(JqdError):
    """Base of a `Client`'s errors. Raised itself for an answer that this version does not understand.

    `status`: HTTP status of the answer, 0 when there was none. `earlier`: the error of an earlier try, perhaps with
    another daemon, which may have taken the refused request.
    """

    earlier: "JqdClientError | None" = None

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class WrongUrl(JqdClientError, ConfigError):
    """The URL given to a `Client`, or in `JQD_URL`, cannot be a daemon's. Nothing was sent."""


class WrongToken(JqdClientError, ConfigError):
    """The file of `JQD_TOKEN_FILE` is unreadable or empty, or no HTTP header can hold the token. Nothing was sent."""


class Unreachable(JqdClientError):
    """No answer came: no daemon is there, or the connection broke.

    `sent`: whether the request may have arrived. If False, nothing happened and trying again is safe. If True, a push
    may have been taken: with a `job_id` of your own it can be repeated and counts once.
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
    """The daemon requires a token, or one with other rights."""


class Invalid(JqdClientError):
    """The daemon refused the request's content. `errors` names the fields."""

    def __init__(self, message: str, *, status: int, errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message, status=status)
        self.errors = list(errors)


class TooLarge(JqdClientError):
    """The request is bigger than the daemon takes. Push fewer jobs at once, or put the data elsewhere."""


class Unavailable(JqdClientError):
    """The daemon cannot take this now. `retry_after`: seconds it asks to wait, or None.

    `maybe_taken`: some of the push may have been taken; only if the store must confirm it, for its ids (the client's
    own, too), a unique key or a group. Push again only with an id of your own or a key. False: nothing was taken.
    `ids_unknown`: the store, which alone knows whether the push's ids are in use, is away. No daemon took it, but one
    would without ids. `closed`: the daemon stops or its disk fails; it took nothing.
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
    """An answer, or the end of jobs, did not come in time. `pending`: the ids of the jobs that have not ended."""

    def __init__(self, message: str, *, pending: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.pending = list(pending)


class JobFailed(JqdClientError):
    """The job whose result was asked for has failed or was cancelled. `info` is the `JobInfo`."""

    def __init__(self, message: str, *, info: Any) -> None:
        super().__init__(message)
        self.info = info


class NoResult(JqdClientError):
    """The job succeeded, but its result was not kept: it was pushed without `keep_result`, or was too large."""


class LessSafe(JqdClientError):
    """Jobs were taken, but less safely than asked: the store was away. Do not push them again.

    `job_ids`: all ids of the push, in order. `ack`: the lowest level that was reached.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str], ack: str) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.ack = ack


class PartlyPushed(JqdClientError):
    """Some jobs of one `push_many` were taken and some were not.

    `job_ids`: in the order of the jobs, None for those not taken. `errors`: why the daemon refused jobs. If a request
    failed in between, `__cause__` has its error, after which its jobs may have been taken all the same.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str | None], errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.errors = list(errors)


class BufferFull(JqdClientError):
    """A buffer had no room for the job within the time that a push waits: the daemon is away, or too slow. The job was
    not taken."""


class NotPushed(JqdClientError):
    """Buffered jobs are not known to be taken. `errors`: job id → error of its push.

    After `Unreachable`, `TimedOut` or `Unavailable` a daemon may have taken the job all the same: pushed again with the
    same id and content, it counts once.
    """

    def __init__(self, message: str, *, errors: Mapping[str, JqdClientError]) -> None:
        super().__init__(message)
        self.errors = dict(errors)


def more_doubtful(before: JqdClientError | None, now: JqdClientError) -> JqdClientError:
    """Return which error to keep of two tries: the one after which the push may be taken; else one with `ids_unknown`,
    after which a push without ids is taken; else the later one."""
    return before if before is not None and _weight(before) > _weight(now) else now


def refused_after(earlier: JqdClientError | None, refusal: JqdClientError) -> JqdClientError:
    """Return `refusal`; its message says so if the earlier try may have been taken."""
    if earlier is not None and _doubt(earlier):
        refusal.args = (f"{refusal}; but an earlier try may have been taken: {earlier}",)
        refusal.earlier = earlier
    return refusal


def took_nothing(error: JqdClientError) -> bool:
    """Return whether nothing was taken if this error came, so that another daemon may be asked."""
    return not _doubt(error)


def _weight(error: JqdClientError) -> tuple[int, bool]:
    return _doubt(error), isinstance(error, Unavailable) and error.ids_unknown


def _doubt(error: BaseException | None) -> int:
    """Return how doubtful it is that nothing was taken. 0: certain. 1: it may be taken. 2: the type alone says that."""
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
