"""Decodes a daemon's answers, and makes errors of refusals."""

from dataclasses import dataclass
from typing import Any

import msgspec

from jqd.client.errors import (
    Conflict,
    ContentError,
    Forbidden,
    Invalid,
    ItemError,
    JqdClientError,
    NotFound,
    TooLarge,
    Unavailable,
)
from jqd.client.transport import Response
from jqd.domain.errors import Closed, IdsUnknown
from jqd.domain.media import PROBLEM, bare, language_of

ERRORS_SHOWN_MAX = 5  # in a message; `errors` has all
DETAIL_CHARS_MAX = 300  # of an answer quoted in a message
CONTENT_ERRORS: dict[int, type[ContentError]] = {
    **dict.fromkeys((400, 414, 415, 422), Invalid),
    409: Conflict,
    413: TooLarge,
}
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)
USERS = frozenset({"argument", "result", "error"})  # fields whose values pushers and workers made


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


def decoded(url: str, response: Response) -> Any:
    """Return the decoded body of an answer. If the answer is a refusal in an unknown format, return its text. Raises
    JqdClientError if the answer is not a daemon's."""
    body, status = response.body, response.status
    if not body:
        return None
    kind = response.headers.get("content-type", "")
    try:
        if language_of(kind) == "msgpack":
            return _unpacked(body)
        if language_of(kind) == "json":
            return msgspec.json.decode(body)
    except UNREADABLE as error:
        raise JqdClientError(f"the answer of {url} cannot be decoded: {error}", status=status) from error
    if response.is_success:
        message = f"{url} answered with {kind or 'untyped content'} instead of MessagePack; is it a jqd daemon?"
        raise JqdClientError(message, status=status)
    return body.decode(errors="replace")[:DETAIL_CHARS_MAX]


def _unpacked(packed: bytes) -> Any:
    """Decode a MessagePack body. A user's value that Python cannot hold (text that is not UTF-8, a map whose keys are
    maps) stays `msgspec.Raw`, because the caller may want only the job's state."""
    try:
        return msgspec.msgpack.decode(packed)
    except UNREADABLE:
        fields = msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw])
        return {name: _value(value, may_stay=name in USERS) for name, value in fields.items()}


def _value(packed: msgspec.Raw, *, may_stay: bool) -> Any:
    try:
        return msgspec.msgpack.decode(packed)
    except UNREADABLE:
        if may_stay:
            return packed
        raise


def error_of(response: Response, body: Any) -> JqdClientError:
    """Return the error for a refusal, by its status. `body`: the decoded body of the refusal."""
    status = response.status
    fields = body if isinstance(body, dict) else {}
    text = body if isinstance(body, str) else ""
    detail = str(fields.get("detail") or fields.get("title") or text or "no reason was given")
    message = f"{detail} ({status})"
    errors = item_errors(fields.get("errors"))
    # Field errors that `detail` contains already are not repeated.
    if more := [f"{error.pointer} {error.detail}".strip() for error in errors if error.detail not in detail]:
        message += ": " + "; ".join(more[:ERRORS_SHOWN_MAX])
    if status in (429, 503, 507):
        kind = {"ids_unknown": fields.get("type") == IdsUnknown.problem, "closed": fields.get("type") == Closed.problem}
        return Unavailable(message, status=status, retry_after=_after(response.headers.get("retry-after")), **kind)
    if status in (404, 409) and not _is_daemons(response.headers.get("content-type", "")):
        return JqdClientError(f"{message}: that is no daemon's answer; does a proxy lead to one?", status=status)
    if status in CONTENT_ERRORS:
        return CONTENT_ERRORS[status](message, status=status, errors=errors)
    kinds = {401: Forbidden, 403: Forbidden, 404: NotFound}
    return kinds.get(status, JqdClientError)(message, status=status)


def _is_daemons(content_type: str) -> bool:
    """Return whether a daemon's refusal has this Content-Type. Others are a proxy's, which has no daemon to ask: there
    "not found" says nothing of a job."""
    return language_of(content_type) == "msgpack" or bare(content_type) == PROBLEM


def item_errors(value: Any) -> list[ItemError]:
    """Return the list `errors` of an answer. An entry in an unknown form becomes a text."""
    if not isinstance(value, list):
        return []
    errors = []
    for item in value:
        try:
            errors.append(msgspec.convert(item, ItemError))
        except msgspec.ValidationError:
            index = item.get("index") if isinstance(item, dict) else None
            errors.append(ItemError(detail=str(item), index=index if isinstance(index, int) else None))
    return errors


def odd(what: str, answer: Answer) -> JqdClientError:
    """Return the error for a 2xx answer that cannot be from a jqd daemon. `what`: names the call in the error's
    message."""
    return JqdClientError(f"{what} was answered with something else; is it a jqd daemon?", status=answer.status)


def _after(header: str | None) -> float | None:
    """Return the seconds in a Retry-After header; None if there is no header or it has no number. A date is ignored,
    because a clock may be wrong."""
    try:
        seconds = float(header) if header is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
