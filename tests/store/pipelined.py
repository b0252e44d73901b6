"""A pipeline whose connections the test answers."""

import socket
from collections.abc import AsyncIterator, Mapping

import hiredis
import pytest
import redis
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.store.pipeline import READ_BYTES, Pipeline

PATIENCE_S = 30.0
TIMEOUT_S = 5.0  # of an answer; the clock jumps where it is waited for
LOAD = "LOAD", "library"
CALLS_MAX = 3
LARGE = b"x" * 5_000_000  # more than a socket takes before it is read
OK = b"+OK\r\n"
MISSING = b"-ERR Function not found\r\n"


class Opened:
    """What redis-py gives: a connection that is open, whose other end is the test."""

    def __init__(self) -> None:
        self._sock, far = socket.socketpair()
        self.far = trio.SocketStream(trio.socket.from_stdlib_socket(far))
        self.commands = hiredis.Reader()
        self.cut = False

    def disconnect(self) -> None:
        self.cut = True
        self._sock.close()

    async def next(self) -> str:
        """What was sent next."""
        while (words := self.commands.gets()) is False:
            data = await self.far.receive_some(READ_BYTES)
            assert data, "closed"
            self.commands.feed(data)
        return " ".join(str(word, "utf-8") for word in words)

    async def say(self, *answers: bytes) -> None:
        """Over the wire, in one go."""
        await self.far.send_all(b"".join(answers))

    def heard_nothing(self) -> bool:
        """Whether all that was sent was looked at."""
        try:
            self.commands.feed(self.far.socket._sock.recv(READ_BYTES))  # type: ignore[attr-defined]
        except BlockingIOError:
            return self.commands.gets() is False
        return False


class Calls:
    """Calls by number, and what came of each."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.opened: list[Opened] = []
        self.refusal: redis.RedisError | None = None
        self.link = Pipeline(self._open, CALLS_MAX, TIMEOUT_S, LOAD)
        self.ended: dict[int, object] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self._nursery = nursery

    async def _open(self) -> Opened:
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(Opened())
        return self.opened[-1]

    @property
    def wire(self) -> Opened:
        """The connection that was opened last."""
        return self.opened[-1]

    async def begin(self, *numbers: int) -> None:
        """One after the other."""
        for number in numbers:
            self._nursery.start_soon(self._call, number)
            await wait_all_tasks_blocked()

    async def _call(self, number: int) -> None:
        with trio.CancelScope() as self.scopes[number]:
            try:
                answer = await self.link.call(("CALL", number))
            except redis.RedisError as error:
                answer = str(error)
            self.ended[number] = answer

    async def until(self, ended: Mapping[int, object]) -> None:
        """Wait for these ends. Who are answered at once may learn it in any order."""
        await wait_all_tasks_blocked()
        assert self.ended == ended


@pytest.fixture
async def calls(nursery) -> AsyncIterator[Calls]:
    calls = Calls(nursery)
    yield calls
    calls.link.close()
    for one in calls.opened:
        await one.far.aclose()
