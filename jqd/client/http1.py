"""The part of HTTP/1.1 that a client of a daemon needs, on one connection.

It follows no redirects, and does not wait for `100 Continue`. An error while writing is ignored at first: a server that
refuses a large body closes the connection, and its answer can still be read.
"""

import os
import re
import select
import socket
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from jqd.client.transport import LostError, Request, Response, SilentError, UnreachedError
from jqd.domain.clock import Clock

if TYPE_CHECKING:
    import ssl

READ_BYTES = 1 << 16
HEAD_BYTES_MAX = 100 << 10  # of an answer; a daemon's has a few hundred
CHUNK_HEAD_BYTES_MAX = 1 << 10
ANSWER_BYTES_MAX = 256 << 20  # unless it is a stream; a result has 16 MiB, and a daemon's list less than this
# A server that sends or takes a byte now and then never times out. So a whole exchange may take `read_s`, and a second
# more for each BYTES_S_MIN bytes. Slow networks are faster.
BYTES_S_MIN = 16 << 10
PORTS = {"http": 80, "https": 443}
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_LENGTH = re.compile("[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)


class Connection:
    """A connection that handles one request at a time."""

    def __init__(self, url: str, tls: "ssl.SSLContext | None", connect_s: float, clock: Clock) -> None:
        """Connect to the daemon at `url`, with TLS for https. Raises UnreachedError, for example if it takes longer
        than `connect_s` seconds."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        self.url, self._base = url, parts.path
        self._process = os.getpid()
        self.is_free = False
        """Whether the last answer has been read completely, so that the connection can take another request."""
        self.free_since_s = 0.0
        self._clock = clock
        self._timeout_s = connect_s  # the socket's present timeout
        self._read_s, self._begun_s, self._is_stream = connect_s, 0.0, False  # of the present exchange
        # Bytes of the present exchange. A request that one write took counts as 0, so that no clock is read for it.
        self._sent_bytes = self._received_bytes = 0
        self._left = b""  # received, not parsed yet
        try:
            if not host.isascii():
                host = host.encode("idna").decode()
            self._socket = socket.create_connection((host, parts.port or PORTS[parts.scheme]), connect_s)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if parts.scheme == "https":
                    assert tls is not None
                    self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise
        except (OSError, UnicodeError) as error:
            raise UnreachedError(str(error)) from error
        self._readable = select.poll() if hasattr(select, "poll") else None  # Windows has none, nor has eventlet
        if self._readable is not None:
            self._readable.register(self._socket, select.POLLIN)
        name = f"[{host}]" if ":" in host else host
        self._own = {"host": name if parts.port in (None, PORTS[parts.scheme]) else f"{name}:{parts.port}"}
        if parts.username is not None:  # for a proxy before the daemon
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._own["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"

    def is_quiet(self) -> bool:
        """Return whether the server has sent nothing since the last answer and has not closed the connection."""
        if self._readable is None:
            return not select.select([self._socket], [], [], 0)[0]
        return not self._readable.poll(0)

    def close(self) -> None:
        """Close the connection, even if a forked child still has it open. In the child, only close the child's
        descriptor."""
        self.shut_down()
        self._socket.close()

    def shut_down(self) -> None:
        """Shut the socket down, which wakes the thread that uses the connection; that thread closes it."""
        if os.getpid() == self._process:
            with suppress(OSError):  # it is broken already
                # The plain socket's method, for TLS as well: that of a TLS socket would forget its session.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def ask(self, request: Request) -> Response:
        """Send a request and return its whole answer. For a stream, the answer's `pieces` are still to be read. Raises
        SilentError, LostError."""
        self.is_free = False
        self._read_s, self._begun_s, self._is_stream = request.read_s, self._clock.mono_s(), False
        self._sent_bytes = self._received_bytes = 0
        if self._timeout_s != request.read_s:
            self._set_timeout(request.read_s)
        is_written = self._write(self._head(request) + (request.body or b""))
        is_kept, response = self._read_head()
        while 100 <= response.status < 200 and response.status != 101:
            is_kept, response = self._read_head()
        is_bare = request.method == "HEAD" or response.status in (101, 204, 304)
        framing = {"content-length": "0"} if is_bare else response.headers
        pieces = self._pieces(framing, can_go_on=is_kept and is_written and response.status != 101)
        if request.streams and response.is_success:
            self._is_stream, response.pieces = True, pieces
        else:
            response.body = b"".join(pieces)
        return response

    def _head(self, request: Request) -> bytes:
        lines = {**request.headers, **self._own}
        if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
            lines["content-length"] = str(len(request.body or b""))
        text = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
        return f"{request.method} {self._base}{request.target} HTTP/1.1\r\n{text}\r\n".encode("ascii")

    def _write(self, data: bytes) -> bool:
        """Send data, and return whether all of it was sent. A broken connection is not an error here."""
        try:
            done = self._socket.send(data)
            while done < len(data):  # not by `sendall`, which has one timeout for all of it
                self._sent_bytes = done
                self._go_on()
                done += self._socket.send(memoryview(data)[done:])
        except TimeoutError as error:
            raise SilentError(str(error)) from error
        except OSError:
            return False
        return True

    def _receive(self) -> bytes:
        """Return the next bytes; empty: the server has closed the connection."""
        if self._received_bytes or self._sent_bytes:
            self._go_on()
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise SilentError(str(error)) from error
        except OSError as error:
            raise LostError(str(error)) from error
        self._received_bytes += len(data)
        return data

    def _go_on(self) -> None:
        """Set the socket's timeout for the next read or write, within the time left for this request. Raises
        SilentError, LostError."""
        timeout_s = self._read_s
        if not self._is_stream:
            if self._received_bytes > ANSWER_BYTES_MAX:
                raise LostError(f"it sends an answer of more than {ANSWER_BYTES_MAX} bytes")
            until_s = self._begun_s + timeout_s + (self._sent_bytes + self._received_bytes) / BYTES_S_MIN
            timeout_s = min(timeout_s, until_s - self._clock.mono_s())
            if timeout_s <= 0:
                raise SilentError(f"it goes on for too long, with less than {BYTES_S_MIN} bytes a second")
        if self._timeout_s != timeout_s:
            self._set_timeout(timeout_s)

    def _set_timeout(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._timeout_s = timeout_s

    def _more(self) -> bytes:
        if not (data := self._receive()):
            raise LostError("the other side closed it")
        return data

    def _read_head(self) -> tuple[bool, Response]:
        """Read the head of an answer. Returns whether the server keeps the connection open afterwards, and the answer
        without body."""
        while (end := self._left.find(b"\r\n\r\n")) < 0:
            if len(self._left) > HEAD_BYTES_MAX or not self._left.startswith(b"HTTP/1."[: len(self._left)]):
                raise LostError(f"it sends what is no HTTP: {self._left[:32]!r}")
            self._left += self._more()
        first, *lines = self._left[:end].decode("latin-1").split("\r\n")
        self._left = self._left[end + 4 :]
        if (status := _STATUS.fullmatch(first)) is None:
            raise LostError(f"it sends what is no HTTP: {first[:32]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise LostError(f"it sends a field that is none: {line[:32]!r}")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        wish = headers.get("connection", "").lower()
        return "close" not in wish if status[1] == "1" else "keep-alive" in wish, Response(int(status[2]), headers)

    def _pieces(self, headers: Mapping[str, str], *, can_go_on: bool) -> Iterator[bytes]:
        """Yield the body of an answer as it comes. Then, if `can_go_on`, mark the connection as free for the next
        request."""
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise LostError(f"it sends its answer as {coding[:32]!r}")
            yield from self._chunks()
        elif length is not None:
            if not _LENGTH.fullmatch(length):
                raise LostError(f"it sends an answer whose length is {length[:32]!r}")
            yield from self._sized(int(length))
        else:
            can_go_on = False
            while piece := self._left or self._receive():
                self._left = b""
                yield piece
        self.is_free = can_go_on and not self._left

    def _sized(self, left: int) -> Iterator[bytes]:
        while left:
            data = self._left or self._more()
            piece, self._left = data[:left], data[left:]
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._sized(size)
            if self._line():
                raise LostError("it sends a chunk that is longer than it says")
        while self._line():  # fields behind the body
            continue

    def _chunk_size(self) -> int:
        if (size := _CHUNK.fullmatch(line := self._line())) is None:
            raise LostError(f"it sends a chunk whose length is {line[:32]!r}")
        return int(size[1], 16)

    def _line(self) -> bytes:
        while (end := self._left.find(b"\r\n")) < 0:
            if len(self._left) > CHUNK_HEAD_BYTES_MAX:
                raise LostError("it sends a chunk whose head has no end")
            self._left += self._more()
        line, self._left = self._left[:end], self._left[end + 2 :]
        return line
