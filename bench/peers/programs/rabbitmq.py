"""RabbitMQ: a quorum queue, persistent messages, publisher confirms, manual acknowledgement."""

import asyncio
from typing import Any

import aio_pika
import uvloop

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

PREFETCH = 300  # its documentation advises 100 to 300
QUEUE = "noop"


class Pusher:
    """A channel on a connection of its own, with confirms."""

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    async def one(self, argument: str) -> None:
        """One job."""
        message = aio_pika.Message(argument.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, QUEUE)

    async def many(self, arguments: list[str]) -> None:
        """All confirms under way at once."""
        await asyncio.gather(*map(self.one, arguments))


async def connect() -> Pusher:
    """A channel."""
    channel = await (await aio_pika.connect(URL)).channel(publisher_confirms=True)
    return Pusher(channel.default_exchange)


async def _prepare() -> None:
    async with await aio_pika.connect(URL) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})


async def _work() -> None:
    channel = await (await aio_pika.connect(URL)).channel()
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(QUEUE)

    async def run(message: Any) -> None:
        mark(message.body.decode())
        await message.ack()

    await queue.consume(run)
    await asyncio.Future()


def push() -> None:
    """Obey orders."""
    drive_async(connect)


def prepare() -> None:
    """Make the queue."""
    asyncio.run(_prepare())


def work() -> None:
    """Never returns."""
    uvloop.run(_work())
