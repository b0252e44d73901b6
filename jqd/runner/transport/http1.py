"""HTTP/1.1 on a connection to a worker: sends a request as a whole and reads its answer while it arrives.

llhttp parses heads and chunks. What is kept of an answer is bounded: a head, and whatever stands between two chunks of
a body, may have at most HEAD_BYTES_MAX, and a body is passed on as it arrives. A connection is not used again if it
sent more than its answer, or if the answer was not read to its end.
"""

import errno
import socket
import ssl
from contextlib import suppress
from typing import NamedTuple

import httptools
import trio

from jqd.domain.errors import JqdError
from jqd.runner.protocols.protocol import Request
from jqd.runner.ssrf import AddressPolicy

HEAD_BYTES_MAX = 131_072  # many times what servers and proxies send
SEND_S = 30.0  # the longest time to send a request, and longer by its size:
SEND_BYTES_PER_S = 65_536
RECEIVE_BYTES = 65_536  # read from the socket at once


class LostError(JqdError):
    """The connection broke, or the answer is not HTTP, and the request may have reached the worker.

    Its jobs without outcome go back to the store, and run alone next time. A job that ran alone loses an attempt.
    """

    def __init__(self, message: str, kind: str) -> None:
        """`kind`: the error in a word or two, for logs, without any text that the worker sent."""
        super().__init__(message)
        self.kind = kind


def describe(error: OSError) -> tuple[str, str]:
    """Return an error of the network as text, preceded by the name of its errno if known (`ECONNREFUSED: …`), and its
    kind (see `LostError`)."""
    text, name = str(error) or type(error).__name__, errno.errorcode.get(error.errno or 0)
    if isinstance(error, ssl.SSLError):  # TLS has numbers of its own
        return text, error.reason or type(error).__name__
    return (f"{name}: {error.strerror or text}", name) if name else (text, type(error).__name__)


class Origin(NamedTuple):
    """Where a connection leads, and for whom. Only a worker with an equal origin may reuse the connection."""

    scheme: str
    host: str
    port: int
    standing: AddressPolicy
    tenant: str = ""


class Line:
    """A TCP connection to a worker, used by one task at a time. Send and receive raise OSError. Sending yields to other
    tasks only if it has to wait, which saves a wake-up for most requests."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw

    async def send(self, data: bytes, within_s: float) -> None:
        """Send all of `data`. Raises trio.TooSlowError when the worker does not take it within that time."""
        try:
            sent = self._raw.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            with trio.fail_after(within_s):  # only here: a request nearly always fits the socket's buffer
                await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, left: memoryview) -> None:
        while left:
            await trio.lowlevel.wait_writable(self._raw)
            with suppress(BlockingIOError):
                left = left[self._raw.send(left) :]

    async def receive(self) -> bytes:
        """Wait for data and return it; empty: the worker closed its side."""
        while True:
            await trio.lowlevel.wait_readable(self._raw)
            try:
                return self._raw.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived unread, not even the end of the connection."""
        try:
            self._raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._raw)
        self._raw.close()


class Wire:
    """A connection with a parser for the answers. It handles one request at a time."""

    def __init__(self, line: Line, origin: Origin) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self.is_quiet = line.is_quiet
        self.close = line.close
        self.status = 0
        self.headers: dict[bytes, str] = {}
        """Headers of the answer, with names in lower case. Of several with the same name only the last is kept."""
        self.pieces = 0
        self._line = line
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []  # pieces that were not handed on yet
        self._quiet_bytes = 0  # received since the last piece of a body
        self._broken: OSError | None = None  # why the request did not go out whole
        self._fault: LostError | None = None  # raised after the parts of the body before it were returned
        self._whole = self._lasting = True  # no request was sent yet

    async def ask(self, request: Request) -> None:
        """Send a request. Read the head of its answer into `status` and `headers`. Raises LostError."""
        self.status = self.pieces = self._quiet_bytes = 0
        self.headers, self._body, self._broken, self._fault = {}, [], None, None
        self._whole = self._lasting = False
        within_s = SEND_S + len(request.body) / SEND_BYTES_PER_S
        try:
            await self._line.send(head_of(request) + request.body, within_s)
        except trio.TooSlowError:
            why = f"the worker did not take the request in within {within_s:.0f} s"
            raise LostError(why, "not taken in") from None
        except OSError as error:
            self._broken = error  # perhaps the worker answered before it had read all
        while not self.status:
            if not await self._take_in():
                if self._broken is not None:
                    raise LostError(*describe(self._broken)) from self._broken
                raise LostError("the worker closed the connection without an answer", "closed")

    async def read(self) -> bytes:
        """Return the next part of the body; empty: its end. Raises LostError."""
        while not self._body:
            if self._whole:
                return b""
            if not await self._take_in():
                if b"content-length" in self.headers or b"transfer-encoding" in self.headers:
                    raise LostError("the worker closed the connection in the middle of its answer", "closed")
                self._whole = True  # without a length one cannot know whether the body is whole
        body, self._body = self._body, []
        return body[0] if len(body) == 1 else b"".join(body)

    @property
    def is_lasting(self) -> bool:
        """Whether the next request may use this connection."""
        return self._lasting and self._whole and not self._body and self._broken is None

    async def _take_in(self) -> bool:
        """Read and parse the data that comes next. Returns False if the worker closed its side."""
        if self._fault is not None:
            raise self._fault
        try:
            data = await self._line.receive()
        except OSError as error:
            raise LostError(*describe(error)) from error
        if not data:
            self._lasting = False
            return False
        self._quiet_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._whole or isinstance(error, httptools.HttpParserUpgrade):
                self._fault = LostError(_no_http(error, self._parser.get_status_code()), "no HTTP")
                if not self._body:
                    raise self._fault from error
            self._lasting = False
        if self._body:
            self._quiet_bytes = 0
        elif self._quiet_bytes > HEAD_BYTES_MAX and not self._whole:
            raise LostError(f"the answer has more than {HEAD_BYTES_MAX} bytes beside what it says", "no HTTP")
        return True

    # ------------------------------------------------ what the parser tells

    def on_message_begin(self) -> None:
        """Called by the parser when a message begins. If one has ended already, the connection must not be used
        again."""
        if self._whole:
            self._lasting = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header. Trailers are ignored."""
        if not self.status:
            self.headers[name.lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser after a head. Stores the status, but drops the head of an interim response (1xx)."""
        if self._whole:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self.headers.clear()
        else:
            self.status = status

    def on_body(self, body: bytes) -> None:
        if not self._whole:
            self.pieces += 1
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser when a message has ended, which may be an interim response."""
        if self.status and not self._whole:
            self._whole, self._lasting = True, self._parser.should_keep_alive()


def _no_http(error: Exception, status: int) -> str:
    if isinstance(error, httptools.HttpParserUpgrade):
        return (
            f"the worker answered {status} and goes on in another protocol, which nobody asked for, so its jobs have no"
            " answer; let what is at its URL answer the request itself, in HTTP/1.1"
        )
    return f"what the worker answered is no HTTP/1.1 ({error}); register the URL of what answers in HTTP/1.1"


def head_of(request: Request) -> bytes:
    """Return the bytes of a request's head. Raises ValueError if a header contains a line end."""
    method, url, headers, body, _, lasting = request
    _, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    text, lines = f"{method} /{path} HTTP/1.1\r\nHost: {host}\r\n", len(headers) + 2
    for name, value in headers:
        text += f"{name}: {value}\r\n"
    if text.count("\n") != lines or text.count("\r") != lines:
        raise ValueError(f"a header of a request to {host} would be two")
    length = f"Content-Length: {len(body)}\r\n" if body or method not in ("GET", "DELETE") else ""
    return f"{text}{lasting}{length}\r\n".encode("latin-1")
