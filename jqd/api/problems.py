"""Errors of the API: RFC 9457 problem details, and the table from errors to statuses."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import groupby, islice
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.domain import errors as ours
from jqd.domain.errors import Fault, Interrupted, JqdError, ServiceError, StoreRefused
from jqd.http import Refused
from jqd.service.batch import DESCRIBED_MAX

RETRY_AFTER_S = 1  # a second later there may be a new journal segment, or another daemon answers

STATUSES: tuple[tuple[type[JqdError], int], ...] = (
    (ours.Unreadable, 400),
    (ours.Incomplete, 400),
    (ours.Denied, 403),
    (ours.NotFound, 404),
    (ours.Conflict, 409),
    (ours.TooLarge, 413),
    (ours.Invalid, 422),
    (ours.Overloaded, 429),
    (ours.NotYet, 503),
    (ours.Closed, 503),
    (ours.JournalRefused, 503),
    (ours.StoreAway, 503),
    (ours.StoreRefused, 503),
)
"""Error → status in jqd's own API. The first row whose class matches counts. If the disk is full, the status is 507
instead."""


class Error(Struct, kw_only=True, frozen=True):
    """One fault of a request."""

    index: int | UnsetType = UNSET
    """The index of the job in the request's array; the pointer begins with it."""
    pointer: Annotated[str, Meta(description="a JSON pointer into the body")]
    detail: str


class Details(Struct, frozen=True):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[Error] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    """Id of an internal error in the daemon's log."""


class Problem(JqdError):
    """An error that is sent to the client with this status; `Api` makes the response. Nothing was done for the
    request."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Error] = (),
        retry_after_s: int | None = None,
        fault: str = "",
        uri: str = "about:blank",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`fault`: the id of the entry in the daemon's log. `headers`: additional headers of the response. `uri`: the
        `type` of the problem details, by which programs recognize the problem."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.retry_after_s = retry_after_s
        self.fault = fault
        self.uri = uri
        self.headers = headers or {}

    def body(self) -> Details:
        """Return the problem details."""
        title = HTTPStatus(self.status).phrase
        return Details(self.uri, title, self.status, self.detail, self.errors or UNSET, self.fault or UNSET)


def as_problem(error: JqdError, statuses: Sequence[tuple[type[JqdError], int]] = STATUSES) -> Problem:
    """Convert any error to a problem. `statuses`: the table of the request's API, from errors to statuses."""
    match error:
        case Problem():
            return error
        case Refused():
            return Problem(error.status, error.detail, retry_after_s=error.retry_after_s)
        case Interrupted(cause=cause):
            inner = as_problem(cause, statuses)
            detail = f"{error.changed} jobs were changed before this: {inner.detail}"
            return Problem(inner.status, detail, errors=inner.errors, retry_after_s=inner.retry_after_s)
    status = next((status for kind, status in statuses if isinstance(error, kind)), 500)
    if status == 500:
        return Problem(status, f"{type(error).__name__}: {error}")
    if getattr(error, "full", False):
        status = 507
    detail = f"the store cannot be used: {error}" if isinstance(error, StoreRefused) else str(error)
    faults: Sequence[Fault] = error.faults if isinstance(error, ServiceError) else ()
    again_s = error.retry_after_s if isinstance(error, ours.Overloaded) else RETRY_AFTER_S if status >= 500 else None
    uri = error.problem if isinstance(error, ours.IdsUnknown | ours.Closed) else "about:blank"
    return Problem(status, detail, errors=errors_of(faults), retry_after_s=again_s, uri=uri)


def errors_of(faults: Sequence[Fault]) -> list[Error]:
    """Convert faults to the member `errors` of problem details. For jobs in an array, the pointer begins with the job's
    index, and only the first DESCRIBED_MAX jobs are listed: so an answer cannot be much larger than its request."""
    by_job = islice(groupby(faults, lambda fault: fault.place), DESCRIBED_MAX)
    return [
        Error(pointer=pointer, detail=detail)
        if place is None
        else Error(index=place, pointer=f"/{place}{pointer}", detail=detail)
        for place, of_job in by_job
        for pointer, detail, _ in of_job
    ]
