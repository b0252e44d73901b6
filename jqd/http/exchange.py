"""One request and its response on a connection."""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

import trio

from jqd.domain.clock import SystemClock
from jqd.http.body import Chunked
from jqd.http.config import ListenerConfig
from jqd.http.head import Head
from jqd.http.request import Refused, Request, Response, Stream
from jqd.http.transport import Transport

OWN = frozenset(("content-length", "connection", "transfer-encoding"))  # headers that the server itself writes
READ_BYTES = 65_536
AT_LOOK = -1.0  # stands for a time: see Wire.read_due_s
AHEAD_BYTES = 16_384  # bytes of further requests that are read while one is under way
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = frozenset((204, 304))  # statuses without body and length, as are all below 200
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

Address = tuple[str, int]


class Ends(NamedTuple):
    """The addresses of both ends of a connection, and the scheme of its URLs."""

    client: Address
    server: Address
    scheme: str


class Dates:
    """Makes the Date header of responses. It is computed once a second."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """Return the Date header for a response sent now, as one line with its line end."""
        second = self._clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


class Wire:
    """Reads and writes the data of one connection. Has the deadlines for reading and for writing."""

    __slots__ = (
        "_began_s",
        "buffer",
        "client",
        "closing",
        "config",
        "dates",
        "pipe",
        "read_due_s",
        "scheme",
        "server",
        "write_due_s",
    )

    def __init__(self, pipe: Transport, config: ListenerConfig, dates: Dates, ends: "Ends") -> None:
        self.pipe = pipe
        self.client, self.server, self.scheme = ends
        self.config = config
        self.dates = dates
        self.buffer = bytearray()
        self.read_due_s = math.inf
        """The time by which data must have arrived. AT_LOOK stands for `idle_s` after the next call of
        `Connection.look`; this saves reading the clock for each request."""
        self.write_due_s = math.inf
        """The time by which the client must have taken the data that is being sent."""
        self.closing = False
        """Whether the listener is closing, so that no further request is accepted."""
        self._began_s: float | None = None

    def begin_request(self) -> None:
        """Mark the beginning of a request. The clock is read only when `began_s` is called, because most requests
        arrive as a whole and never need the time."""
        self._began_s = None

    def began_s(self) -> float:
        """Return when the present request began, by trio's clock: the time of the first call since `begin_request`."""
        if self._began_s is None:
            self._began_s = trio.current_time()
        return self._began_s

    async def write(self, data: bytes) -> None:
        """Send data completely. Raises trio.BrokenResourceError."""
        sent = self.pipe.send_now(data)
        if sent < len(data):
            await self.write_rest(data, sent)

    async def write_rest(self, data: bytes, sent: int) -> None:
        """Send what the kernel did not take at once: the data after the first `sent` bytes. Raises
        trio.BrokenResourceError."""
        self.write_due_s = trio.current_time() + self.config.send_s + len(data) / self.config.send_rate
        try:
            await self.pipe.send_all(memoryview(data)[sent:])
        finally:
            self.write_due_s = math.inf


class Exchange(Request):
    """A request and its response: reads the body when it is asked for, and writes the response."""

    sent = False
    """Whether the client may have seen a part of the response."""
    complete = False
    """Whether the response was written to its end."""
    stopped: str | None = None
    """Why the response was not written to its end; None if it was, or is still being written."""
    gone = False
    """Whether the connection is broken, so that nobody can read the response."""
    left = False
    """Whether the client will send no more data. Most such clients have left, but some still read."""
    cut = False
    """Whether the client sent less than it had announced, and then closed."""
    refusal: Refused | None = None
    """The error in a malformed chunked body."""
    _silent = False  # whether the client had left at the last `look`
    _work: trio.CancelScope | None = None  # cancelled when the client leaves
    _continued = False  # whether a 100 Continue was sent
    _received = 0  # bytes of the body that have arrived
    _status = 0  # status of the response; 0: it is not begun
    _lines = b""  # headers of the response
    _chunks = False  # whether the response is sent in chunks
    _mute = False  # whether the response is sent without a body
    _owed: int | None = None  # bytes of the response's body that are still to come, if its length is known

    def __init__(self, wire: Wire, head: Head) -> None:
        super().__init__(head.heading, wire.client[0])
        self.wire = wire
        self.head = head
        self.whole = not (head.length or head.chunked)
        self.closes = not head.keeps
        """Whether the connection is closed after this response."""
        self._left = head.length
        self._chunked = Chunked() if head.chunked else None

    # ------------------------------------------------------------ in

    def read_nowait(self) -> bytes:
        buffer = self.wire.buffer
        if self.whole or not buffer:
            return b""
        if self._chunked is None:
            piece = bytes(buffer[: self._left])
            del buffer[: self._left]
            self._left -= len(piece)
            self.whole = not self._left
        else:
            try:
                piece = self._chunked.take(buffer)
            except Refused as refusal:
                self.refusal = refusal
                return b""
            self.whole = self._chunked.done
        self._received += len(piece)
        return piece

    async def read(self) -> bytes | None:
        wire = self.wire
        try:
            if self.head.expects and not (self._continued or wire.buffer or self.sent):
                self._continued = True
                await wire.write(CONTINUE)
            while not (self.refusal or self.left or self.gone):
                if self._chunked is not None and wire.buffer:
                    await trio.lowlevel.checkpoint()  # 64 KiB of small chunks take 10 ms
                piece = self.read_nowait()
                if piece or self.whole:
                    return piece
                if self.refusal:
                    break
                wire.read_due_s = self._due_s()
                data = await wire.pipe.receive_some(READ_BYTES)
                wire.read_due_s = math.inf
                if not data:
                    self.cut = self.left = True
                wire.buffer += data
        except trio.BrokenResourceError:
            self.gone = True
        wire.read_due_s = math.inf
        self.left = True
        return None

    def _due_s(self) -> float:
        """Return by when, by trio's clock, more of the request's body must have arrived. That follows from the time
        limit of a request and the lowest allowed rate."""
        config = self.wire.config
        return self.wire.began_s() + min(config.request_s, config.body_grace_s + self._received / config.body_rate)

    async def wait_left(self) -> None:
        """Wait until the client leaves. Further requests that arrive meanwhile stay in the buffer."""
        wire = self.wire
        while not (self.left or self.gone or self.complete):
            if len(wire.buffer) >= AHEAD_BYTES:
                await trio.sleep_forever()  # the caller cancels this when it has answered
            try:
                data = await wire.pipe.receive_some(AHEAD_BYTES)
            except trio.BrokenResourceError:
                self.gone = True
                return
            wire.buffer += data
            self.left = not data

    @contextmanager
    def while_there(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as self._work:
            try:
                yield self._work
            finally:
                self._work = None

    def look(self) -> None:
        """Check whether the client has left. If this check and the one before found that, cancel the work for the
        request. One check is not enough: a client that closed only its sending side may still read the answer."""
        if self._work is None or not self.wire.pipe.has_left():
            return
        if self._silent:
            self.left = True
            self._work.cancel()
        self._silent = True

    # ------------------------------------------------------------ out

    async def answer(self, answer: Response) -> None:
        self.begin(answer.status, answer.fields())
        try:
            if answer.stream is not None:
                self.stopped = await self._stream(answer.stream)
            if not self.stopped:
                await self.send(answer.body, more=False)
        finally:
            if self.gone or not self.complete:
                for on_lost in answer.lost:
                    on_lost()

    async def _stream(self, stream: Stream) -> str | None:
        """Write a streamed body, and watch whether the client leaves. Returns why the body could not be written to its
        end; None if it was written, or nobody reads it any more."""

        async def write(piece: bytes) -> bool:
            if piece:
                await self.send(piece, more=True)
            return not (self.gone or self.left or self.wire.closing)

        await self.send(b"", more=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.wait_left)
            why = await stream(write)
            nursery.cancel_scope.cancel()
        return why

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Set the status and the headers (names in lower case) of the response. They are sent with the first part of
        the body.

        Raises RuntimeError if it was called before, ValueError for an invalid header.
        """
        if self._status:
            raise RuntimeError("an answer is begun once")
        self._status = status
        lines, count = "", 0
        for name, value in headers:
            if name in OWN:
                self._heed(name, value)
            else:
                lines += f"{name}: {value}\r\n"
                count += 1
        self._lines = header_lines(lines, count)

    async def send(self, piece: bytes, *, more: bool) -> None:
        """Send a part of the body. `more`: whether further parts follow. Raises RuntimeError if `begin` was not called,
        or after the last part."""
        if not self._status or self.complete:
            raise RuntimeError("an answer is begun before a piece of it is sent, and has an end")
        head = b"" if self.sent else self._render_head(piece, more)
        data = head + self._frame(piece, more)
        self.sent = True
        if data and not self.gone:
            try:
                sent = self.wire.pipe.send_now(data)
                if sent < len(data):
                    await self.wire.write_rest(data, sent)
            except trio.BrokenResourceError:
                self.gone = True
        self.complete = not more

    def _render_head(self, body: bytes, more: bool) -> bytes:
        """Return the head of the response. Decides how the client will find the end of the body: by a length, by
        chunks, or by the end of the connection. `body`: the first part of the body; `more`: other parts follow."""
        bodiless = self._status < 200 or self._status in BODILESS
        self._mute = bodiless or self.head.method == "HEAD"
        added = b""
        if not bodiless:
            if self._owed is None and not more:
                self._owed = len(body)
            if self._owed is not None:
                added = b"content-length: %d\r\n" % self._owed
            elif self.head.http_1_0:
                self.closes = True
            else:
                self._chunks = not self._mute
                added = b"transfer-encoding: chunked\r\n"
        self.closes = self.closes or not self.whole or self.wire.closing
        if self.closes:
            added += b"connection: close\r\n"
        elif self.head.http_1_0:
            added += b"connection: keep-alive\r\n"
        return render_head(self._status, self._lines, self.wire.dates.line(), added)

    def _heed(self, name: str, value: str) -> None:
        """Apply a header that the application set, but the server writes itself: take the length of the body from
        Content-Length, or close the connection after the response for `Connection: close`."""
        if name == "content-length":
            self._owed = int(value)
        elif name == "connection":
            self.closes = self.closes or "close" in value.lower()

    def _frame(self, body: bytes, more: bool) -> bytes:
        """Return a part of the body in the form in which it is sent: as a chunk, or unchanged.

        Raises RuntimeError if the body is longer or shorter than its Content-Length.
        """
        if self._mute:
            return b""
        if self._chunks:
            return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        if self._owed is not None:
            self._owed -= len(body)
            if self._owed < 0 or (self._owed and not more):
                raise RuntimeError(f"the answer is {-self._owed} bytes longer than its Content-Length (less: shorter)")
        return body


def header_lines(text: str, count: int) -> bytes:
    """Encode a text of `count` header lines. Raises ValueError if a header contains a line end, or a character outside
    Latin-1."""
    lines = text.encode("latin-1")
    if len(lines.splitlines()) != count or b"\0" in lines:
        raise ValueError("a header of the answer has a line end within")
    return lines


def render_head(status: int, lines: bytes, date: bytes, more: bytes) -> bytes:
    """Return the head of a response as bytes. `lines`: headers of the application. `more`: headers that the server
    adds."""
    line = _LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()
    return b"".join((line, date, lines, more, b"\r\n"))


App = Callable[[Exchange], Awaitable[Response | None]]
"""An application: a function that handles a request. It returns the response; None if it has written the response
itself, or the client has left."""
