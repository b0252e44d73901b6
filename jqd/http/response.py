"""Answers as bytes. Pure, but for the date."""

import json
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus

from jqd.domain import media
from jqd.domain.clock import Clock, SystemClock
from jqd.http.request import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_SLOW = "the request came too slowly, or was not complete in time; nothing was taken"
BODILESS = frozenset((204, 304))  # and all below 200: no body, and no word of its length
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_LINES = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in _PHRASES.items()}


class Dates:
    """The Date header, made once a second."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header, with its line end."""
        second = self._clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


def render_head(status: int, headers: Sequence[tuple[bytes, bytes]], date: bytes, more: bytes) -> bytes:
    """`more`: whole lines that the connection adds. Raises ValueError for a header that would be more than one."""
    line = _LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()
    fields = b"\r\n".join(map(b": ".join, headers))
    if len(fields.splitlines()) != len(headers) or b"\0" in fields:
        raise ValueError("a header of the answer has a line end within")
    return b"".join((line, date, fields, b"\r\n" if fields else b"", more, b"\r\n"))


def problem_answer(status: int, detail: str, *, fault: str = "", retry_after_s: int | None = None) -> Response:
    """Says what is wrong (RFC 9457), and closes the connection."""
    told: dict[str, object] = {
        "type": "about:blank",
        "title": _PHRASES.get(status, "Error"),
        "status": status,
        "detail": detail,
    }
    if fault:
        told["id"] = fault
    headers = {"connection": "close"}
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    return Response(status, json.dumps(told).encode(), media.PROBLEM, headers)


def render_whole(answer: Response, date: bytes) -> bytes:
    """An answer that stands for itself, outside of any exchange."""
    length = (b"content-length", b"%d" % len(answer.body))
    return render_head(answer.status, [*answer.fields(), length], date, b"") + answer.body
