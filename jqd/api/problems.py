"""Errors of the edge: RFC 9457 problem details, and the one table from an error to its status."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from jqd.words.errors import JournalRefused, JqdError, StoreAway, StoreRefused, WorkerRefused

RETRY_AFTER_S = 1  # a pusher that waits a second meets the next journal segment, or the next daemon


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


def field_problem(pointer: str, detail: str) -> Problem:
    """422: one field is wrong."""
    return Problem(422, detail, errors=[{"pointer": pointer, "detail": detail}])


def as_problem(error: JqdError) -> Problem:
    """What a client is told of an error that a room raised."""
    match error:
        case Problem():
            return error
        case JournalRefused(full=True):
            return Problem(507, str(error), retry_after_s=RETRY_AFTER_S)
        case JournalRefused() | StoreAway():
            return Problem(503, str(error), retry_after_s=RETRY_AFTER_S)
        case StoreRefused():
            return Problem(503, f"the store cannot be used: {error}", retry_after_s=RETRY_AFTER_S)
        case WorkerRefused(field=field):
            return field_problem(f"/{field}", str(error))
    return Problem(500, f"{type(error).__name__}: {error}")
