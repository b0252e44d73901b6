"""Errors of the edge: RFC 9457 problem details, and the one table from an error to its status."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from jqd.words.errors import (
    Closed,
    Conflict,
    DeskError,
    Fault,
    Foreign,
    Incomplete,
    Interrupted,
    Invalid,
    JournalRefused,
    JqdError,
    NotFound,
    NotYet,
    StoreAway,
    StoreRefused,
    TooLarge,
    Unreadable,
)

RETRY_AFTER_S = 1  # a pusher that waits a second meets the next journal segment, or the next daemon

STATUSES: tuple[tuple[type[JqdError], int], ...] = (
    (Unreadable, 400),
    (Incomplete, 400),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (Invalid, 422),
    (NotYet, 503),
    (Closed, 503),
    (JournalRefused, 503),
    (StoreAway, 503),
    (StoreRefused, 503),
)
"""The native interface's; the first that fits. Where a full disk is the reason it is 507."""


class Problem(JqdError):
    """A request that is answered with an error. Raised where it is found, rendered at the edge; nothing was done."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, object]] = (),
        retry_after_s: int | None = None,
        fault: str = "",
    ) -> None:
        """`fault`: the id under which the log has more."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.retry_after_s = retry_after_s
        self.fault = fault

    def body(self) -> dict[str, object]:
        """The members of the problem document."""
        body: dict[str, object] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        if self.fault:
            body["id"] = self.fault
        return body


def as_problem(error: JqdError, statuses: Sequence[tuple[type[JqdError], int]] = STATUSES) -> Problem:
    """What a client is told of an error that a room raised. `statuses`: those of the surface it asks through."""
    match error:
        case Problem():
            return error
        case Foreign(status=status):
            return Problem(status, str(error))
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
    faults: Sequence[Fault] = error.faults if isinstance(error, DeskError) else ()
    return Problem(status, detail, errors=errors_of(faults), retry_after_s=RETRY_AFTER_S if status >= 500 else None)


def errors_of(faults: Sequence[Fault]) -> list[dict[str, object]]:
    """The member `errors`: of one job its pointers, of several their places before them."""
    return [
        {"pointer": pointer, "detail": detail}
        if place is None
        else {"index": place, "pointer": f"/{place}{pointer}", "detail": detail}
        for pointer, detail, place in faults
    ]
