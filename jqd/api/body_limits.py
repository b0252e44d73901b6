"""Requests in, answers out: heads that are refused unread, bodies and the room they take.

A body that is too large, lies about its length or is cut off ends here or at the door, and never reaches a component.
"""

from collections import Counter
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from jqd.api.config import PUSHES
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.domain.tenant import SEPARATOR
from jqd.http import SOME_BYTES, Request, RequestHead

HEADERS_MAX = 100  # more is no client of ours
HEADER_BYTES_MAX = 16_384  # of all of them, as common servers have it
TARGET_LENGTH_MAX = 16_384  # path and query: a list's cursor has a place in each queue, 9 KB for 1,000
LENGTH_DIGITS_MAX = 18  # of a Content-Length: more is no length, whatever the limit
LASTING = 15 / 16  # for these and what workers say: the rest is for small bodies


class Disconnected(Exception):
    """The client went away before its request was whole: nobody is left to answer."""


Owner = tuple[str, bool]  # who makes a request, and whether it is a report


class BodyBudget:
    """The memory that bodies of requests may take, all together. `shared`: whether there is more than one who asks.

    Bodies above SOME_BYTES may wait in line for a turn, so they stay here for long: they are counted by owner. While
    others ask, too, each owner's take at most half of what those of other owners leave (but one always may, if nothing
    else forbids it). Pushes fill three quarters of the room at most, and what an owner's workers say of their jobs
    counts as another owner's: so no push, of whomever, makes a report fail.
    """

    def __init__(self, bytes_max: int, shared: Callable[[], bool]) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self.shared = shared
        self.lasting: Counter[Owner] = Counter()
        """What may wait, of each owner."""
        self.kinds = [0, 0]
        """The same of all owners: pushes, and reports."""

    def has_share(self, owner: Owner, held: int, size: int) -> bool:
        """Whether so many bytes more of an owner may stay here while they wait, in a body of which `held` are here."""
        own, all_bytes = self.lasting[owner], sum(self.kinds)
        is_report = owner[1]
        if not is_report and self.kinds[False] + size > self.bytes_max * PUSHES:
            return False
        bound = self.bytes_max * (LASTING if is_report else 1)
        is_fair = own == held or not self.shared() or own + size <= (bound - (all_bytes - own)) // 2
        return is_fair and all_bytes + size <= self.bytes_max * LASTING

    def last(self, owner: Owner, size: int) -> None:
        """So many bytes more that may wait; fewer, if below 0."""
        self.kinds[owner[1]] += size
        self.lasting[owner] += size
        if not self.lasting[owner]:
            del self.lasting[owner]


class Reservation(Struct, gc=False):
    """What one request has of a room, for the time of a `with`.

    `whose`: who makes it; asked above SOME_BYTES only. `is_report`: whether a worker says something of its jobs.
    """

    room: BodyBudget
    whose: Callable[[], str]
    is_report: bool
    bytes: int = 0
    owner: Owner | None = None
    """Known when it may wait."""

    def take(self, size: int) -> None:
        """Have so many bytes more. Raises Problem 503 when there is no room."""
        room = self.room
        if self.owner is None and self.bytes + size > SOME_BYTES:
            self.owner = self.whose(), self.is_report
            room.last(self.owner, self.bytes)
        is_full = room.bytes + size > room.bytes_max
        if is_full or (self.owner is not None and not room.has_share(self.owner, self.bytes, size)):
            raise Problem(503, "too many bodies are being read already; try again", retry_after_s=RETRY_AFTER_S)
        self.bytes += size
        room.bytes += size
        if self.owner is not None:
            room.last(self.owner, size)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.room.bytes -= self.bytes
        if self.owner is not None:
            self.room.last(self.owner, -self.bytes)


def check_head(heading: RequestHead, bytes_max: int, *, is_native: bool) -> None:
    """Refuse by the head what need not be read. Raises Problem 404, 413, 414, 415, 422, 431."""
    headers = heading.headers
    target_length = len(heading.path) + len(heading.query)
    if target_length > TARGET_LENGTH_MAX:
        raise Problem(414, f"path and query have {target_length} characters; a request may have {TARGET_LENGTH_MAX}")
    length = sum(map(len, headers)) + sum(map(len, headers.values()))
    if len(headers) > HEADERS_MAX:
        raise Problem(431, f"there are more than {HEADERS_MAX} headers")
    if length > HEADER_BYTES_MAX:
        raise Problem(431, f"the headers have {length} bytes; a request may have {HEADER_BYTES_MAX}")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > LENGTH_DIGITS_MAX or int(declared) > bytes_max):
        raise _too_large(bytes_max)
    encoding = headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise Problem(415, f"Content-Encoding {encoding.strip().lower()[:32]!r} is not taken; send the body as it is")
    # Bodies say names too: what they say is looked at where a name becomes one of ours (`Services.qualified_name`).
    # No other surface names anything in a query, and what they do not know there they pass over.
    named = any(SEPARATOR in text for text in (heading.path, *headers.values()))
    if named or (is_native and SEPARATOR.encode() in unquote_to_bytes(heading.query)):
        # The other surfaces have no word for a wrong name: there is none like it.
        status = 422 if is_native else 404
        raise Problem(status, "path, query and headers name nothing with the character U+001F: no name has it")


async def read_body(asked: Request, part: Reservation, bytes_max: int) -> bytes:
    """The whole body; `part` takes every piece. A cut body is no body. Raises Problem 413, 503, or Disconnected."""
    piece: bytes | None = asked.read_nowait()
    pieces: list[bytes] = []
    size = 0
    while piece is not None:
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max)
        part.take(len(piece))
        if asked.whole and not pieces:
            return piece
        pieces.append(piece)
        if asked.whole:
            return b"".join(pieces)
        piece = await asked.read()
    raise Disconnected


def _too_large(bytes_max: int) -> Problem:
    return Problem(413, f"the body has more than {bytes_max} bytes; push smaller jobs, or fewer in one request")
