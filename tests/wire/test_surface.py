"""The whole interface over TCP: every call of the table is asked for, and answers as it says."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx2
import pytest
import trio

from jqd.routes import ROUTES
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.valkey import Valkey, valkey
from tests.wire.calls import drive
from tests.wire.surface import KEY, WAIT_S, Stub, Surface, leave


class Side(NamedTuple):
    """A daemon and its store."""

    daemon: Daemon
    store: Valkey

    @asynccontextmanager
    async def surface(self) -> AsyncIterator[Surface]:
        """What asks it."""
        limits = httpx2.Limits(max_keepalive_connections=1)
        async with httpx2.AsyncClient(base_url=self.daemon.url, timeout=30, limits=limits) as client:
            client.headers = httpx2.Headers()
            yield Surface(client)


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    with (
        short_directory() as base,
        valkey("--appendfsync", "always") as store,
        Daemon(base / "d", "--store", store.url, env={"JQD_API__MASTER_KEY": KEY}) as daemon,
    ):
        deadline_s = time.monotonic() + WAIT_S
        while '"through":true' not in daemon.get("/v1/daemons").text:
            assert time.monotonic() < deadline_s, daemon.log.read_text()
            time.sleep(0.01)  # watches a process of its own
        yield Side(daemon, store)


async def test_every_call_of_the_table_answers(side: Side) -> None:
    with Stub().serving() as stub:
        async with side.surface() as surface:
            await drive(surface, stub.url)
    for route in ROUTES:
        statuses = surface.asked.get((route.method, route.path), set())
        assert any(status < 300 for status in statuses), f"{route.method} {route.path} is never asked for"


async def test_who_waits_at_sigterm_is_answered(side: Side) -> None:
    """A job in flight keeps the daemon; a poll waits for it, and a push for the store, which is halted meanwhile."""
    with Stub().serving() as stub:
        async with side.surface() as surface:
            await leave(surface, side.daemon.child, side.store.pid, stub.url)
        assert await trio.to_thread.run_sync(side.daemon.child.wait, WAIT_S) == 0
