"""One request and its answer, as an ASGI application sees them."""

import math
from collections.abc import Iterable, MutableMapping
from typing import Any

import trio

from jqd.doors.answer import BODILESS, CONTINUE, Dates, render_head
from jqd.doors.body import body_of
from jqd.doors.config import DoorConfig
from jqd.doors.head import Head, Headers, Refused
from jqd.doors.pipe import Pipe

Message = MutableMapping[str, Any]

READ_BYTES = 65_536
AHEAD_BYTES = 16_384  # of requests that come while one is under way; then the client has to wait


class Wire:
    """What one connection reads and writes, and until when it must have got on."""

    __slots__ = ("buffer", "closing", "config", "dates", "pipe", "read_due_s", "request_began_s", "write_due_s")

    def __init__(self, pipe: Pipe, config: DoorConfig, dates: Dates) -> None:
        self.pipe = pipe
        self.config = config
        self.dates = dates
        self.buffer = bytearray()
        self.request_began_s = 0.0
        self.read_due_s = math.inf
        self.write_due_s = math.inf
        self.closing = False
        """The door closes: no further request is taken."""

    async def write(self, data: bytes) -> None:
        """Send it all. Raises trio.BrokenResourceError."""
        self.write_due_s = trio.current_time() + self.config.send_s + len(data) / self.config.send_rate
        try:
            await self.pipe.send_all(data)
        finally:
            self.write_due_s = math.inf


class Exchange:
    """Reads a body when it is asked for, and writes an answer, once."""

    __slots__ = (
        "_chunks",
        "_end_told",
        "_expects",
        "_headers",
        "_mute",
        "_owed",
        "_received",
        "_status",
        "_wire",
        "body",
        "closes",
        "complete",
        "cut",
        "gone",
        "head",
        "left",
        "refusal",
        "sent",
    )

    def __init__(self, wire: Wire, head: Head) -> None:
        self._wire = wire
        self.head = head
        self._expects = head.expects
        self._received = 0
        self._end_told = False
        self._status = 0
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._chunks = False
        self._mute = False
        self._owed: int | None = None
        self.body = body_of(head)
        self.closes = not head.keeps
        """Whether the connection ends with this answer."""
        self.sent = False
        """Whether the client may have seen something of the answer."""
        self.complete = False
        self.gone = False
        """Whether nobody is there to listen."""
        self.left = False
        """Whether the client will send no more: most have gone then, some listen on."""
        self.cut = False
        """The client sent less than it had said."""
        self.refusal: Refused | None = None
        """The body is none."""

    # ------------------------------------------------------------ in

    async def receive(self) -> Message:
        """ASGI: the body piece by piece, then, when the client has gone, `http.disconnect`."""
        if self._end_told:
            await self._wait_gone()
            return {"type": "http.disconnect"}
        piece = b"" if self.body.done else await self._read()
        if piece is None:
            self._end_told = self.left = True
            return {"type": "http.disconnect"}
        self._end_told = self.body.done
        return {"type": "http.request", "body": piece, "more_body": not self.body.done}

    async def _read(self) -> bytes | None:
        """A piece of the body; None when no more of it will be had."""
        wire, body = self._wire, self.body
        try:
            if self._expects and not wire.buffer and not self.sent:
                self._expects = False
                await wire.write(CONTINUE)
            while True:
                if wire.buffer:
                    piece = body.take(wire.buffer)
                    self._received += len(piece)
                    if piece or body.done:
                        return piece
                wire.read_due_s = self._due_s()
                data = await wire.pipe.receive_some(READ_BYTES)
                wire.read_due_s = math.inf
                if not data:
                    self.cut = True
                    return None
                wire.buffer += data
        except Refused as refusal:
            self.refusal = refusal
        except trio.BrokenResourceError:
            self.gone = True
        wire.read_due_s = math.inf
        return None

    def _due_s(self) -> float:
        """When more of the body must have come: in time for the whole, and for the slowest rate."""
        config, began_s = self._wire.config, self._wire.request_began_s
        return began_s + min(config.request_s, config.body_grace_s + self._received / config.body_rate)

    async def _wait_gone(self) -> None:
        """Return when the client has gone. Requests that come meanwhile are kept for later."""
        wire = self._wire
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

    # ------------------------------------------------------------ out

    async def send(self, message: Message) -> None:
        """ASGI: the answer's head, which waits for its first piece, then its pieces."""
        if message["type"] == "http.response.start" and not self._status:
            self._status = message["status"]
            self._headers = message.get("headers", ())
            return
        if message["type"] != "http.response.body" or not self._status or self.complete:
            raise RuntimeError(f"an answer is one start and its pieces of a body; {message['type']} is out of place")
        body, more = message.get("body", b""), message.get("more_body", False)
        head = b"" if self.sent else self._render_head(body, more)
        data = head + self._frame(body, more)
        self.sent = True
        if data and not self.gone:
            try:
                await self._wire.write(data)
            except trio.BrokenResourceError:
                self.gone = True
        self.complete = not more

    def _render_head(self, body: bytes, more: bool) -> bytes:
        """Decides how the answer ends: by its length, by its last chunk, or with the connection."""
        bodiless = self._status < 200 or self._status in BODILESS
        self._mute = bodiless or self.head.method == "HEAD"
        fields: Headers = []
        for name, value in self._headers:
            match name.lower():
                case b"content-length":
                    self._owed = int(value)
                case b"connection":
                    self.closes = self.closes or b"close" in value.lower()
                case b"transfer-encoding":
                    continue  # it is the connection's business
                case _:
                    fields.append((name, value))
        if not bodiless:
            if self._owed is None and not more:
                self._owed = len(body)
            if self._owed is not None:
                fields.append((b"content-length", b"%d" % self._owed))
            elif self.head.http_1_0:
                self.closes = True
            else:
                self._chunks = not self._mute
                fields.append((b"transfer-encoding", b"chunked"))
        self.closes = self.closes or not self.body.done or self._wire.closing
        added = b""
        if self.closes:
            added = b"connection: close\r\n"
        elif self.head.http_1_0:
            added = b"connection: keep-alive\r\n"
        return render_head(self._status, fields, self._wire.dates.line(), added)

    def _frame(self, body: bytes, more: bool) -> bytes:
        """A piece of the body as it goes out. Raises RuntimeError when it is not as long as was said."""
        if self._mute:
            return b""
        if self._chunks:
            return (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        if self._owed is not None:
            self._owed -= len(body)
            if self._owed < 0 or (self._owed and not more):
                raise RuntimeError(f"the answer is {-self._owed} bytes longer than its Content-Length (less: shorter)")
        return body
