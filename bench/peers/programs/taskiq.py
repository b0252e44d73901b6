"""Taskiq: streams of Redis, the broker whose jobs are acknowledged; two processes, 100 jobs at once in each."""

import asyncio

from taskiq_redis import RedisStreamBroker

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

AT_ONCE = 50  # pushes under way of one program

broker = RedisStreamBroker(URL)


@broker.task(task_name="noop")
async def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """Connections are the broker's own affair: it has a pool."""

    async def one(self, argument: str) -> None:
        """One job."""
        await noop.kiq(argument)

    async def many(self, arguments: list[str]) -> None:
        """Several under way: there is no call for several."""
        for at in range(0, len(arguments), AT_ONCE):
            await asyncio.gather(*map(self.one, arguments[at : at + AT_ONCE]))


async def connect() -> Pusher:
    """A broker that is started."""
    await broker.startup()
    return Pusher()


def push() -> None:
    """Obey orders."""
    drive_async(connect, shared=True)
