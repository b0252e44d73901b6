"""One request and its response on the wire."""

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

OWN = frozenset(("content-length", "connection", "transfer-encoding"))  # headers that a connection says itself
READ_BYTES = 65_536
AT_LOOK = -1.0  # a time that is none, see Wire
AHEAD_BYTES = 16_384  # of requests that come while one is under way; then the client has to wait
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = frozenset((204, 304))  # and all below 200: no body, and no word of its length
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

Address = tuple[str, int]


class Ends(NamedTuple):
    """The two ends of a connection, and its scheme."""

    client: Address
    server: Address
    scheme: str


class Dates:
    """The Date header, made once a second."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header, with its line end."""
        second = self._clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self._line = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


class Wire:
    """The reading and writing of one connection, and their deadlines."""

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
        """AT_LOOK: counted from the next look on, for what takes so long that nobody has to read a clock for it now."""
        self.write_due_s = math.inf
        self.closing = False
        """The door closes: no further request is taken."""
        self._began_s: float | None = None

    def begin_request(self) -> None:
        """Begin a request. Most have come whole, so the clock is read only when it is needed."""
        self._began_s = None

    def began_s(self) -> float:
        """Return when a request began that is not complete yet."""
        if self._began_s is None:
            self._began_s = trio.current_time()
        return self._began_s

    async def write(self, data: bytes) -> None:
        """Send all of it. Raises trio.BrokenResourceError."""
        sent = self.pipe.send_now(data)
        if sent < len(data):
            await self.write_rest(data, sent)

    async def write_rest(self, data: bytes, sent: int) -> None:
        """Send what the kernel did not take at once. Raises trio.BrokenResourceError."""
        self.write_due_s = trio.current_time() + self.config.send_s + len(data) / self.config.send_rate
        try:
            await self.pipe.send_all(memoryview(data)[sent:])
        finally:
            self.write_due_s = math.inf


class Exchange(Request):
    """Reads a body on demand, and writes the response, once."""

    sent = False
    """Whether the client may have seen something of the answer."""
    complete = False
    stopped: str | None = None
    """Why the answer was not written to its end."""
    gone = False
    """Whether nobody is there to listen."""
    left = False
    """Whether the client will send no more: most have gone then, some listen on."""
    cut = False
    """Whether the client sent less than it had announced."""
    refusal: Refused | None = None
    """The body is none."""
    _silent = False  # it sent no more, when that was looked at
    _work: trio.CancelScope | None = None  # ends with the client
    _continued = False  # the client was told to send its body
    _received = 0
    _status = 0
    _lines = b""  # its headers
    _chunks = False
    _mute = False
    _owed: int | None = None

    def __init__(self, wire: Wire, head: Head) -> None:
        super().__init__(head.heading, wire.client[0])
        self.wire = wire
        self.head = head
        self.whole = not (head.length or head.chunked)
        self.closes = not head.keeps
        """Whether the connection ends with this answer."""
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
        """Return when more of the body must have come: by the limit of the whole, and by the slowest rate."""
        config = self.wire.config
        return self.wire.began_s() + min(config.request_s, config.body_grace_s + self._received / config.body_rate)

    async def wait_left(self) -> None:
        """Wait until the client leaves. Requests that come meanwhile are kept for later."""
        wire = self.wire
        while not (self.left or self.gone or self.complete):
            if len(wire.buffer) >= AHEAD_BYTES:
                await trio.sleep_forever()  # the application gives up by itself when it has answered
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
        """End the work for a client that had already left at the look before: a client that only listens on has so
        long."""
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
        """Write the pieces of a streamed body, and notice when the client leaves."""

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
        """Begin the response, header names in lower case; it goes out with the first piece of its body.

        Raises RuntimeError; ValueError for an invalid header.
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
        """Send a piece of the body. Raises RuntimeError without a response."""
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
        """Render the head, and decide how the body ends: by its length, by its last chunk, or with the connection."""
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
        """Note a header of the application that concerns the connection."""
        if name == "content-length":
            self._owed = int(value)
        elif name == "connection":
            self.closes = self.closes or "close" in value.lower()

    def _frame(self, body: bytes, more: bool) -> bytes:
        """Return a piece of the body as it goes out.

        Raises RuntimeError when it is longer or shorter than announced.
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
    """So many headers, each with its line end, as they go over the wire. Raises ValueError for one that would be more
    than one, or is not Latin-1."""
    lines = text.encode("latin-1")
    if len(lines.splitlines()) != count or b"\0" in lines:
        raise ValueError("a header of the answer has a line end within")
    return lines


def render_head(status: int, lines: bytes, date: bytes, more: bytes) -> bytes:
    """`lines`: of its headers. `more`: those that the connection adds."""
    line = _LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()
    return b"".join((line, date, lines, more, b"\r\n"))


App = Callable[[Exchange], Awaitable[Response | None]]
"""The application behind a listener. Returns the response; None: it answered by itself, or the client is gone."""
