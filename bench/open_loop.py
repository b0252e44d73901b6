"""Pushes at the moments at which they are due, whether or not those before are answered.

A client that waits for each answer pushes less while the daemon is slow, and so never measures what the others of that
moment would have seen. Here each push has its moment from the start, and its time counts from then on; a push that
finds all connections busy goes out late, and the wait is part of its time.
"""

import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import trio

from bench.marks import argument

PUSH_S = 30.0  # of one push: no answer is slower
READ_BYTES = 65_536
BROKEN = 0  # instead of a status: the connection broke, or no answer came in time
TAKEN = 201


class Connection(Protocol):
    """What pushes one job at a time."""

    async def push(self, number: int) -> int:
        """Return the status of the answer, or BROKEN."""


@dataclass
class Load:
    """What came of a run. All times are seconds after its beginning."""

    rate: float
    numbers: range
    began_ns: int
    """By the machine's clock since boot, as marks of jobs that began."""
    statuses: dict[int, int] = field(default_factory=dict)
    """By number."""
    acked_s: dict[int, float] = field(default_factory=dict)
    late_s: list[float] = field(default_factory=list)
    """How much later than due each push went out: the generator's own slowness, or too few connections."""

    def due_s(self, number: int) -> float:
        """When it was to be pushed."""
        return (number - self.numbers.start) / self.rate

    @property
    def taken(self) -> list[int]:
        """The numbers that were acknowledged."""
        return [number for number, status in self.statuses.items() if status == TAKEN]

    def ack_ms(self) -> list[float]:
        """From due to acknowledged."""
        return [(self.acked_s[number] - self.due_s(number)) * 1e3 for number in self.taken]


async def open_loop(
    connections: Sequence[Connection], *, rate: float, numbers: range, each: Callable[[Load], None] = lambda load: None
) -> Load:
    """Push jobs with these numbers, `rate` a second. `each` is called behind every answer."""
    load, began_s = Load(rate, numbers, time.monotonic_ns()), trio.current_time()
    left = iter(numbers)

    async def work(connection: Connection) -> None:
        for number in left:  # whoever is free takes the next, and waits for its moment
            await trio.sleep_until(began_s + load.due_s(number))
            load.late_s.append(trio.current_time() - began_s - load.due_s(number))
            load.statuses[number] = await connection.push(number)
            load.acked_s[number] = trio.current_time() - began_s
            each(load)

    async with trio.open_nursery() as nursery:
        for connection in connections:
            nursery.start_soon(work, connection)
    return load


class HttpConnection:
    """Single pushes over HTTP/1.1, as plain as can be: the generator shall not be what is measured.

    With several URLs, a push that breaks goes to the next one, and so do those behind it.
    """

    def __init__(self, urls: Sequence[str], name: str, token: str | None = None) -> None:
        self._urls, self._name = [*urls], name
        self._token = f"Authorization: Bearer {token}\r\n" if token else ""
        self._stream: trio.abc.Stream | None = None

    async def push(self, number: int) -> int:
        """Return the status, or BROKEN when none of the daemons took it."""
        body = msgspec.msgpack.encode({"name": self._name, "argument": argument(number)})
        for _ in self._urls:
            with trio.move_on_after(PUSH_S), suppress(OSError, trio.BrokenResourceError, EOFError):
                return await self._exchange(body)
            await self.close()  # the next URL may be a daemon that lives
            self._urls.append(self._urls.pop(0))
        return BROKEN

    async def close(self) -> None:
        """Hang up."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream = None

    async def _exchange(self, body: bytes) -> int:
        url = urlsplit(self._urls[0])
        self._stream = self._stream or await _open(url.scheme, url.hostname or "", url.port)
        head = f"POST {url.path.rstrip('/')}/v1/jobs HTTP/1.1\r\nHost: {url.netloc}\r\n{self._token}"
        kind = "Content-Type: application/msgpack\r\nAccept: application/msgpack\r\n"
        await self._stream.send_all(f"{head}{kind}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while not (end := answer.find(b"\r\n\r\n") + 4) > 3 or len(answer) < end + _length(answer[:end]):
            piece = await self._stream.receive_some(READ_BYTES)
            if not piece:
                raise EOFError("hung up in the middle of an answer")
            answer += piece
        return int(answer[9:12])


async def _open(scheme: str, host: str, port: int | None) -> trio.abc.Stream:
    if scheme == "https":
        context = ssl.create_default_context()
        return await trio.open_ssl_over_tcp_stream(host, port or 443, ssl_context=context, https_compatible=True)
    return await trio.open_tcp_stream(host, port or 80)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0
