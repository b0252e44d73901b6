"""The whole interface over HTTP/1 at the first door and over HTTP/2 at the second: the same answers, to the byte."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple

import httpx2
import pytest
import trio

from jqd.api.routes import ROUTES
from tests.live.harness import Daemon, short_directory
from tests.valkey import Valkey, valkey
from tests.wire.calls import drive
from tests.wire.streams import Streams, streams
from tests.wire.surface import KEY, WAIT_S, Client, Plain, Stub, Surface, Told, leave, unnumbered


class Side(NamedTuple):
    """A daemon, its store, and how it is spoken to."""

    daemon: Daemon
    store: Valkey
    streams: bool

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """One that speaks nothing else."""
        if self.streams:
            async with streams(int(self.daemon.url.rpartition(":")[2])) as client:
                yield client
        else:
            limits = httpx2.Limits(max_keepalive_connections=1)
            async with httpx2.AsyncClient(base_url=self.daemon.url, timeout=30, limits=limits) as plain:
                plain.headers = httpx2.Headers()
                yield Plain(plain)


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    with ExitStack() as stack:
        both: list[Side] = []
        for door in ("lean", "hypercorn"):
            base = stack.enter_context(short_directory())
            store = stack.enter_context(valkey("--appendfsync", "always"))
            daemon = stack.enter_context(
                Daemon(base / "d", "--store", store.url, env={"JQD_HTTP__DOOR": door, "JQD_API__MASTER_KEY": KEY})
            )
            deadline_s = time.monotonic() + WAIT_S
            while '"through":true' not in daemon.get("/v1/daemons").text:
                assert time.monotonic() < deadline_s, daemon.log.read_text()
                time.sleep(0.01)  # watches a process of its own
            both.append(Side(daemon, store, streams=door == "hypercorn"))
        yield both


async def test_every_call_is_answered_alike(sides: list[Side]) -> None:
    told: dict[bool, Surface] = {}

    async def one(side: Side, worker_url: str) -> None:
        async with side.client() as client:
            surface = Surface(client)
            await drive(surface, worker_url)
            told[side.streams] = surface

    with Stub().serving() as stub:
        async with trio.open_nursery() as nursery:
            for side in sides:
                nursery.start_soon(one, side, stub.url)
    first, second = told[False], told[True]
    assert len(first.told) == len(second.told)
    assert [(one, other) for one, other in zip(first.told, second.told, strict=True) if one != other] == []
    for route in ROUTES:
        statuses = first.asked.get((route.method, route.path), set())
        assert any(status < 300 for status in statuses), f"{route.method} {route.path} is never asked for"


async def test_who_waits_at_sigterm_is_answered_alike(sides: list[Side]) -> None:
    """A job in hand keeps the daemon; a poll waits for it, and a push for the store, which is halted meanwhile."""
    told: list[list[Told]] = []
    with Stub().serving() as stub:
        for side in sides:
            async with side.client() as client:
                surface = Surface(client)
                await leave(surface, side.daemon.child, side.store.pid, stub.url)
                if isinstance(client, Streams):
                    await client.wait_over()
                    assert client.goaway is not None
            assert await trio.to_thread.run_sync(side.daemon.child.wait, WAIT_S) == 0
            told.append(surface.told)
    assert told[0] == told[1]


@pytest.mark.parametrize("cursor", ["0001795512215312.6883378884325", "0001795512215312.688e378884325", "ab.c"])
def test_what_a_page_ends_with_is_masked_whatever_its_digits_are(cursor: str) -> None:
    """Of one in thirty runs the two doors' latest notes differed: one of their cursors had no letter in it."""
    page = {"notes": [{"what": "sky"}], "cursor": "0001795950056468.6889bdc47c20f"}
    assert unnumbered({**page, "cursor": cursor}) == unnumbered(page)
    assert unnumbered({**page, "cursor": ""}) != unnumbered(page), "but whether there is one is seen"
