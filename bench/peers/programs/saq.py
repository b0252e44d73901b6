"""SAQ: 100 jobs at once, no results kept."""

import asyncio
from typing import Any

from saq import Queue

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

AT_ONCE = 50  # pushes under way of one program

queue = Queue.from_url(URL)


async def noop(_: Any, *, argument: str) -> None:
    """The job."""
    mark(argument)


settings = {"queue": queue, "functions": [("noop", noop)], "concurrency": 100}


class Pusher:
    """A queue."""

    def __init__(self) -> None:
        self._queue = Queue.from_url(URL)

    async def one(self, argument: str) -> None:
        """One job."""
        await self._queue.enqueue("noop", argument=argument, ttl=-1)

    async def many(self, arguments: list[str]) -> None:
        """Several under way: there is no call for several."""
        for at in range(0, len(arguments), AT_ONCE):
            await asyncio.gather(*map(self.one, arguments[at : at + AT_ONCE]))


async def connect() -> Pusher:
    """A pool of connections."""
    return Pusher()


def push() -> None:
    """Obey orders."""
    drive_async(connect)
