"""arq: 100 jobs at once, no results kept, and a poll every 10 ms instead of every 500."""

import asyncio
from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

SETTINGS = RedisSettings.from_dsn(URL)
AT_ONCE = 50  # pushes under way of one program


async def noop(_: Any, argument: str) -> None:
    """The job."""
    mark(argument)


class WorkerSettings:
    """What `arq` reads."""

    functions = (func(noop, name="noop", keep_result=0),)
    redis_settings = SETTINGS
    max_jobs = 100
    poll_delay = 0.01


class Pusher:
    """A pool."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def one(self, argument: str) -> None:
        """One job."""
        await self._pool.enqueue_job("noop", argument)

    async def many(self, arguments: list[str]) -> None:
        """Several under way: there is no call for several."""
        for at in range(0, len(arguments), AT_ONCE):
            await asyncio.gather(*map(self.one, arguments[at : at + AT_ONCE]))


async def connect() -> Pusher:
    """A pool of connections."""
    return Pusher(await create_pool(SETTINGS))


def push() -> None:
    """Obey orders."""
    drive_async(connect)
