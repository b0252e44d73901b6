"""The server's end of a connection, in memory, and a house to serve it in."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from jqd.http.asgi import AsgiApp, from_asgi
from jqd.http.config import ListenerConfig
from jqd.http.connection import Connection, ServerContext
from jqd.http.listener import LOOK_S
from jqd.http.request import Request
from jqd.http.transport import Turn

PATIENCE_S = 1_000.0  # of the mock clock
SERVER = ("127.0.0.1", 7420)
CLIENT = ("192.0.2.7", 50_000)


async def body_of(asked: Request) -> bytes | None:
    """All of it; None when its client went away before."""
    body = asked.read_nowait()
    while not asked.whole:
        piece = await asked.read()
        if piece is None:
            return None
        body += piece
    return body


class MemoryPipe:
    """A Pipe; the test is the peer."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.finished = False
        """It said that nothing more comes."""
        self.closed: str = ""
        """How it let go: "close" or "abort"."""
        self.reads = True
        """Whether the peer takes what is sent."""
        self.before: Callable[[str], None] = lambda call: None
        """Called before each call, with its name; it may raise."""
        self._in = bytearray()
        self._eof = self._broken = False
        self._moved = trio.Event()

    # ------------------------------------------------------------ the peer

    def feed(self, data: bytes) -> None:
        self._in += data
        self._move()

    def feed_eof(self) -> None:
        self._eof = True
        self._move()

    def has_left(self) -> bool:
        return self._eof or self._broken

    def reset(self) -> None:
        self._broken = True
        self._move()

    def read_on(self) -> None:
        self.reads = True
        self._move()

    async def wait_sent(self, part: bytes) -> bytes:
        """All that was sent, once `part` is in it."""
        with trio.fail_after(PATIENCE_S):
            while part not in self.sent:
                await self._moved.wait()
        return bytes(self.sent)

    # ------------------------------------------------------------ Pipe

    async def begin(self, turn: Turn) -> None:
        self.before("begin")

    async def receive_some(self, size: int) -> bytes:
        self.before("receive_some")
        while not (self._in or self._eof or self._broken):
            await self._moved.wait()
        if self._broken:
            raise trio.BrokenResourceError
        data = bytes(self._in[:size])
        del self._in[:size]
        return data

    async def receive_next(self, size: int) -> bytes:
        return await self.receive_some(size)

    def send_now(self, data: bytes) -> int:
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        self.before("send_all")
        while not (self.reads or self._broken):
            await self._moved.wait()
        if self._broken:
            raise trio.BrokenResourceError
        self.sent += data
        self._move()

    async def finish(self) -> None:
        self.before("finish")
        self.finished = True
        self._move()

    def close(self) -> None:
        self.closed = self.closed or "close"
        self._move()
        self.before("close")

    def abort(self) -> None:
        self.closed = self.closed or "abort"
        self._move()
        self.before("abort")

    def _move(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()


class Log:
    """Takes note of every line, and fails if told."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.fails = False

    def _write(self, event: str, **fields: object) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        self.lines.append({"event": event, **fields})

    debug = info = warning = error = _write


class Talk:
    """One connection, served."""

    def __init__(self, house: ServerContext, log: Log, pipe: MemoryPipe) -> None:
        self.house = house
        self.log = log
        self.pipe = pipe
        self.connection = Connection(house, pipe, CLIENT)
        self.over = trio.Event()

    async def run(self) -> None:
        assert self.house.limit.join(self.connection)
        await self.connection.run()
        self.over.set()

    async def wait_over(self) -> bytes:
        """What was sent, once the connection is closed."""
        with trio.fail_after(PATIENCE_S):
            await self.over.wait()
        return bytes(self.pipe.sent)


@asynccontextmanager
async def talking(
    app: AsgiApp, config: ListenerConfig | None = None, *, pipe: MemoryPipe | None = None
) -> AsyncIterator[Talk]:
    """A connection whose deadlines are looked at as the door does it."""
    log = Log()
    house = ServerContext(from_asgi(app), config or ListenerConfig(), log, SERVER)
    talk = Talk(house, log, pipe or MemoryPipe())

    async def watch() -> None:
        while True:
            await trio.sleep(LOOK_S)
            for connection in tuple(house.limit.present):
                connection.look(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        nursery.start_soon(talk.run)
        yield talk
        nursery.cancel_scope.cancel()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and says it again."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["path"].encode() + b" " + body})
