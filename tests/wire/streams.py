"""A client of HTTP/2 that hears an answer that comes before it has said all, and what else a door says of itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import trio
from h2.errors import ErrorCodes

from tests.wire.attack import Answer

WINDOW_BYTES = 1 << 20  # taken in before the door has to wait for us
READ_BYTES = 1 << 16


@dataclass
class _Stream:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None


class Streams:
    """One connection; any number of requests at once."""

    def __init__(self, stream: trio.SocketStream, host: str) -> None:
        self._stream = stream
        self._host = host
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._state.initiate_connection()
        self._state.increment_flow_control_window(WINDOW_BYTES)
        self._streams: dict[int, _Stream] = {}
        self._news = trio.Condition()
        self._sending = trio.Lock()
        self.over = False
        self.goaway: int | None = None
        """The last stream that the door took, once it said that it takes no more."""

    async def request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        """Ask, and hear the whole answer. Raises ConnectionError."""
        number, one = self._state.get_next_available_stream_id(), _Stream()
        self._streams[number] = one
        fields = {"host": self._host, **headers}
        host = fields.pop("host")
        named = [(":method", method), (":path", target), (":scheme", "http"), (":authority", host), *fields.items()]
        if content is not None:
            named.append(("content-length", str(len(content))))
        self._state.send_headers(number, named, end_stream=not content)
        await self._flush()
        rest = memoryview(content or b"")
        while rest and not one.ended and one.reset is None:
            size = min(self._state.local_flow_control_window(number), self._state.max_outbound_frame_size, len(rest))
            if size:
                self._state.send_data(number, bytes(rest[:size]), end_stream=size == len(rest))
                rest = rest[size:]
                await self._flush()
            else:
                await self._hear()
        while not one.ended:
            if one.reset is not None or self.over:
                raise ConnectionError(f"{method} {target[:80]}: no answer; reset: {one.reset}, over: {self.over}")
            await self._hear()
        if rest and one.reset is None:  # answered before it was read: a stream that nobody ends stays open for ever
            self._state.reset_stream(number, ErrorCodes.CANCEL)
            await self._flush()
        return Answer(one.status, one.headers, bytes(one.body))

    async def read(self) -> None:
        """Read until the door ends it."""
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                for event in self._state.receive_data(data):
                    self._take(event)
                await self._flush()
                await self._tell()
        except trio.BrokenResourceError:
            self.over = True  # as good as an end: who waits for an answer says that none came
        self.over = True
        await self._tell()

    async def wait_over(self) -> None:
        """Until the door has ended it."""
        while not self.over:
            await self._hear()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                one = self._streams[event.stream_id]
                one.headers = dict(event.headers)
                one.status = int(one.headers.pop(b":status"))
            case h2.events.DataReceived():
                self._streams[event.stream_id].body += event.data
                self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self._streams[event.stream_id].ended = True
            case h2.events.StreamReset():
                self._streams[event.stream_id].reset = int(event.error_code)
            case h2.events.ConnectionTerminated():
                self.goaway = event.last_stream_id

    async def _flush(self) -> None:
        async with self._sending:
            await self._stream.send_all(self._state.data_to_send())

    async def _hear(self) -> None:
        async with self._news:
            await self._news.wait()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def streams(port: int) -> AsyncIterator[Streams]:
    """A connection to a door of this machine."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as nursery:
        client = Streams(stream, f"127.0.0.1:{port}")
        nursery.start_soon(client.read)
        yield client
        nursery.cancel_scope.cancel()
