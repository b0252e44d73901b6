"""A client of the second door that speaks HTTP/2 frame by frame, over a pipe in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from jqd.doors import Answer, Asked, DoorConfig
from jqd.doors.classic import Classic
from jqd.doors.connection import Connection, House
from jqd.doors.listener import LOOK_S
from tests.doors.pipes import CLIENT, SERVER, Log, MemoryPipe, body_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BOTH = DoorConfig(streams=True)
LEAN = DoorConfig()
PATIENCE_S = 1_000.0  # of the mock clock


async def echo(asked: Asked) -> Answer | None:
    """Says the body again; refuses what is for /refuse by its head."""
    if asked.heading.path == "/refuse":
        return Answer(413, (), b"too large")
    if asked.heading.path == "/fail":
        raise ValueError("a-secret-of-the-request")
    if asked.heading.path == "/big":
        return Answer(200, (), bytes(1 << 20))
    body = await body_of(asked)
    if body is None:
        return None
    if asked.heading.path == "/wait":
        await asked.wait_left()
    return Answer(200, (), asked.heading.path.encode() + b" " + body)


class Talk:
    """One connection that speaks HTTP/2, with the test for its client and a clock that jumps."""

    def __init__(self, config: DoorConfig = BOTH, wide: int = 1) -> None:
        self.log = Log()
        self.pipe = MemoryPipe()
        self.house = House(echo, config, self.log, SERVER)
        self.wide = trio.Semaphore(wide)
        self.house.streams = lambda wire, busy: Classic(self.house.app, wire, self.log, busy, self.wide).serve()
        self.connection = Connection(self.house, self.pipe, CLIENT)
        self.over = trio.Event()
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="ascii"))
        self.client.initiate_connection()
        self.statuses: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.resets: dict[int, int] = {}
        self.goaway: int | None = None
        self._heard = 0

    def ask(
        self,
        stream: int,
        path: str,
        *more: tuple[str, str],
        method: str = "GET",
        body: bytes | None = None,
        end: bool = True,
    ) -> None:
        fields = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"), *more]
        self.client.send_headers(stream, fields, end_stream=end and body is None)
        if body is not None:
            self.client.send_data(stream, body, end_stream=end)

    def send_all_it_may(self, stream: int, piece: bytes, most: int = 1 << 30) -> int:
        """Pieces of a body, until its window is shut; how many bytes."""
        sent = 0
        while sent < most and (room := min(self.client.local_flow_control_window(stream), len(piece))):
            self.client.send_data(stream, piece[:room])
            sent += room
        return sent

    async def turn(self) -> None:
        """What the client has to say, and what it hears."""
        for _ in range(6):
            self.pipe.feed(self.client.data_to_send())
            await wait_all_tasks_blocked()
            new, self._heard = bytes(self.pipe.sent[self._heard :]), len(self.pipe.sent)
            for event in self.client.receive_data(new):
                match event:
                    case h2.events.ResponseReceived():
                        self.statuses[event.stream_id] = str(dict(event.headers)[":status"])  # type: ignore[index]
                    case h2.events.DataReceived():
                        self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                        self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        self.ended.append(event.stream_id)
                    case h2.events.StreamReset():
                        self.resets[event.stream_id] = int(event.error_code)
                    case h2.events.ConnectionTerminated():
                        self.goaway = event.last_stream_id

    async def run(self) -> None:
        assert self.house.crowd.join(self.connection)
        await self.connection.run()
        self.over.set()

    async def wait_over(self) -> None:
        with trio.fail_after(PATIENCE_S):
            await self.over.wait()
        assert not self.house.crowd.present


@asynccontextmanager
async def talking(config: DoorConfig = BOTH, wide: int = 1) -> AsyncIterator[Talk]:
    talk = Talk(config, wide)

    async def watch() -> None:
        while True:
            await trio.sleep(LOOK_S)
            talk.connection.look(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        nursery.start_soon(talk.run)
        yield talk
        nursery.cancel_scope.cancel()
