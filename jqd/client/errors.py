"""The errors that a client raises: its own, and those that a daemon answers."""

import enum
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
    """The field with the error, as a JSON pointer."""


class JqdClientError(JqdError):
    """Base class of a `Client`'s errors. It is raised itself for an answer that this version does not understand.

    `status`: HTTP status of the answer, 0 if there was no answer. `earlier`: the error of an earlier try, perhaps at
    another daemon. That try may have been taken, although the request was now refused.
    """

    earlier: "JqdClientError | None" = None

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class WrongUrl(JqdClientError, ConfigError):
    """The URL given to a `Client` or in `JQD_URL` cannot be that of a daemon. Nothing was sent."""


class WrongToken(JqdClientError, ConfigError):
    """The token cannot be used: its file (`JQD_TOKEN_FILE`) is unreadable or empty, or no HTTP header can hold it.
    Nothing was sent."""


class Unreachable(JqdClientError):
    """No answer came: there is no daemon, or the connection broke.

    `sent`: whether the request may have arrived. If False, nothing has happened, and trying again is safe. If True, a
    push may have been taken; with a `job_id` of your own it can be repeated and counts once.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ClientClosed(JqdClientError):
    """The client was closed by another part of the program; make another. A push that was under way may have been
    taken."""


class NotFound(JqdClientError):
    """There is no such job, or it ended so long ago that it has been deleted."""


class Forbidden(JqdClientError):
    """The daemon requires a token, or a token with other rights."""


class ContentError(JqdClientError):
    """Base class of the errors by which a daemon refuses the content of a request. `errors` names the fields or the
    jobs, as far as the daemon does."""

    def __init__(self, message: str, *, status: int = 0, errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message, status=status)
        self.errors = list(errors)


class Invalid(ContentError):
    """The daemon refused the request's content. `errors` names the fields."""


class Conflict(ContentError):
    """The `job_id` belongs to a job with other content (use replace=True or another id), or the job has ended."""


class TooLarge(ContentError):
    """The request is bigger than the daemon takes. Push fewer jobs at once, or put the data elsewhere."""


class Unavailable(JqdClientError):
    """The daemon cannot take this now. `retry_after`: seconds after which to try again; None: unknown.

    `maybe_taken`: part of the push may have been taken. This happens only if the store had to confirm ids (also the
    client's own), a unique key or a group. Push again only with an id of your own or a key. If False, nothing was
    taken. `ids_unknown`: the store, which alone knows whether the push's ids are in use, is unavailable. No daemon has
    taken the push, but a daemon would take it without ids. `closed`: the daemon stops or its disk fails, and it took
    nothing.
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
    """An answer did not come in time, or jobs did not end in time. `pending`: ids of the jobs that had not ended."""

    def __init__(self, message: str, *, pending: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.pending = list(pending)


class JobFailed(JqdClientError):
    """The job whose result the program wants has failed or was cancelled. `info` is the job's `JobInfo`."""

    def __init__(self, message: str, *, info: Any) -> None:
        super().__init__(message)
        self.info = info


class NoResult(JqdClientError):
    """The job succeeded, but its result was not kept, because it was pushed without `keep_result` or the result was too
    large."""


class LessSafe(JqdClientError):
    """Jobs were taken, but less safely than asked for, because the store was unavailable. Do not push them again.

    `job_ids`: all ids of the push, in order. `ack`: the lowest level of safety among them.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str], ack: str) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.ack = ack


class PartlyPushed(JqdClientError):
    """Some jobs of one `push_many` were taken, and some were not.

    `job_ids`: the jobs' ids in order, None for each job that was not taken. `errors`: why the daemon refused jobs,
    for the first hundred of each request. If a request failed in between, `__cause__` is its error, and the jobs of
    that request may have been taken nevertheless.
    """

    def __init__(self, message: str, *, job_ids: Sequence[str | None], errors: Sequence[ItemError] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)
        self.errors = list(errors)


class BufferFull(JqdClientError):
    """The buffer had no room for the job within the time that a push waits, because the daemon is unavailable or too
    slow. The job was not taken."""


class NotPushed(JqdClientError):
    """The pushes of some buffered jobs failed. `errors`: job id → error of its push.

    After `Unreachable`, `TimedOut` or `Unavailable` a daemon may have taken the job nevertheless. Pushed again with the
    same id and content, the job counts once.
    """

    def __init__(self, message: str, *, errors: Mapping[str, JqdClientError]) -> None:
        super().__init__(message)
        self.errors = dict(errors)


class _Taken(enum.IntEnum):
    """Whether a push was taken in spite of an error."""

    NO = 0
    MAYBE = 1
    UNKNOWN = 2
    """It may have been taken, and nothing in the error tells more."""


def error_to_raise(before: JqdClientError | None, now: JqdClientError) -> JqdClientError:
    """Return the error that a push raises after failed tries: that of the earlier tries, `before` (None: there were
    none), or that of the last one, `now`. It is the one that leaves it more likely that the push was taken. If both are
    equal: the one with `ids_unknown`, as it tells that a push without ids may succeed; else `now`."""
    return before if before is not None and _weight(before) > _weight(now) else now


def add_earlier_error(earlier: JqdClientError | None, refusal: JqdClientError) -> JqdClientError:
    """Return `refusal`. If an earlier try may have been taken in spite of its error, `refusal` gets that error as
    `earlier`, and says so in its message."""
    if earlier is not None and _was_taken(earlier) is not _Taken.NO:
        refusal.args = (f"{refusal}; but an earlier try may have been taken: {earlier}",)
        refusal.earlier = earlier
    return refusal


def took_nothing(error: JqdClientError) -> bool:
    """Return whether this error means that nothing was taken, so that another daemon may be asked."""
    return _was_taken(error) is _Taken.NO


def _weight(error: JqdClientError) -> tuple[_Taken, bool]:
    return _was_taken(error), isinstance(error, Unavailable) and error.ids_unknown


def _was_taken(error: BaseException | None) -> _Taken:
    match error:
        case PartlyPushed():
            return _was_taken(error.__cause__)
        case Unreachable(sent=False) | Unavailable(status=429):
            return _Taken.NO
        case Unavailable(ids_unknown=ids_unknown, closed=closed) if ids_unknown or closed:
            return _Taken.NO
        case Unavailable():
            return _Taken.MAYBE
    return _Taken.UNKNOWN
