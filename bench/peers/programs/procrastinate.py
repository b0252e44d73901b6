"""Procrastinate: rows of PostgreSQL, pushed in batches, deleted when they have succeeded."""

import asyncio

import uvloop
from procrastinate import App, PsycopgConnector

from bench.marks import mark
from bench.peers.programs.drive import URL, drive_async

CONCURRENCY = 20  # jobs at once, and connections of the pool

app = App(connector=PsycopgConnector(conninfo=URL, min_size=1, max_size=CONCURRENCY))


@app.task(name="noop")
async def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """Connections are the connector's own affair: it has a pool."""

    async def one(self, argument: str) -> None:
        """One job."""
        await noop.defer_async(argument=argument)

    async def many(self, arguments: list[str]) -> None:
        """In one statement."""
        await noop.batch_defer_async(*({"argument": each} for each in arguments))


async def connect() -> Pusher:
    """A connector that is open."""
    await app.open_async()
    return Pusher()


async def _prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def _work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful", listen_notify=True)


def push() -> None:
    """Obey orders."""
    drive_async(connect, shared=True)


def prepare() -> None:
    """Make the tables."""
    asyncio.run(_prepare())


def work() -> None:
    """Never returns."""
    uvloop.run(_work())
