"""NATS JetStream: a work queue in files, pushed with several acknowledgements under way, 1,000 delivered at most."""

import asyncio

import nats
import uvloop
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

PENDING = 1_000  # delivered and not acknowledged, the default of the server
STREAM = StreamConfig("bench", subjects=["noop"], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE)


class Pusher:
    """A connection."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream

    async def one(self, argument: str) -> None:
        """One job."""
        await self._stream.publish("noop", argument.encode())

    async def many(self, arguments: list[str]) -> None:
        """All under way at once."""
        await asyncio.gather(*[await self._stream.publish_async("noop", each.encode()) for each in arguments])


async def connect() -> Pusher:
    """A connection."""
    return Pusher((await nats.connect(URL)).jetstream())


async def _prepare() -> None:
    connection = await nats.connect(URL)
    await connection.jetstream().add_stream(STREAM)
    await connection.close()


async def _work() -> None:
    connection = await nats.connect(URL)

    async def run(message: Msg) -> None:
        mark(message.data.decode())
        await message.ack()

    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=PENDING)
    await connection.jetstream().subscribe("noop", durable="bench", manual_ack=True, config=config, cb=run)
    await asyncio.Future()


def push() -> None:
    """Obey orders."""
    drive_async(connect)


def prepare() -> None:
    """Make the stream."""
    asyncio.run(_prepare())


def work() -> None:
    """Never returns."""
    uvloop.run(_work())
