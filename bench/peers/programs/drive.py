"""What every pushing program does: it obeys one JSON line after another on its standard input.

    {"do": "many", "first": 0, "count": 5000, "seconds": 8}   in arrays, until the time is over
    {"do": "single", "first": 0, "connections": 16, "seconds": 1}    one after another on each connection
    {"do": "paced", "first": 0, "count": 50, "rate": 25, "delay": 0.01}    one at a time, each at its own moment

Each is answered with a line: how many were acknowledged, and when the first was due by the clock since boot.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from bench.marks import argument

URL = os.environ.get("PEER_URL", "")
ARRAY = 500  # jobs of a push of many

Told = dict[str, int]


class Pusher(Protocol):
    """One connection. Both return when the queue has acknowledged."""

    def one(self, argument: str) -> Any:
        """Push one job."""

    def many(self, arguments: list[str]) -> Any:
        """Push several in the quickest way that the queue's documentation shows."""


class AsyncPusher(Protocol):
    """The same for libraries of asyncio."""

    async def one(self, argument: str) -> Any:
        """Push one job."""

    async def many(self, arguments: list[str]) -> Any:
        """Push several."""


def drive(connect: Callable[[], Pusher]) -> None:
    """Obey until the standard input ends."""
    orders: dict[str, Callable[..., Told]] = {"many": _many, "single": _single, "paced": _paced}
    pushers = [connect()]
    _answer({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        while len(pushers) < order.get("connections", 1):
            pushers.append(connect())
        _answer(orders[order.pop("do")](pushers, **order))


def _many(pushers: list[Pusher], first: int, count: int, seconds: float) -> Told:
    deadline_s, began_ns, pushed = time.monotonic() + seconds, time.monotonic_ns(), 0
    while pushed < count and time.monotonic() < deadline_s:
        size = min(ARRAY, count - pushed)
        pushers[0].many([argument(first + pushed + place) for place in range(size)])
        pushed += size
    return {"pushed": pushed, "began_ns": began_ns}


def _single(pushers: list[Pusher], first: int, connections: int, seconds: float) -> Told:
    began_ns, counts = time.monotonic_ns(), [0] * connections
    deadline_s = time.monotonic() + seconds

    def push(place: int) -> None:
        while time.monotonic() < deadline_s:
            pushers[place].one(argument(first + counts[place] * connections + place))
            counts[place] += 1

    threads = [threading.Thread(target=push, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"pushed": sum(counts), "began_ns": began_ns}


def _paced(pushers: list[Pusher], first: int, count: int, rate: float, delay: float) -> Told:
    began_ns = time.monotonic_ns() + int(delay * 1e9)
    for place in range(count):
        time.sleep(max(0.0, (began_ns + place * 1e9 / rate - time.monotonic_ns()) / 1e9))
        pushers[0].one(argument(first + place))
    return {"pushed": count, "began_ns": began_ns}


def drive_async(connect: Callable[[], Awaitable[AsyncPusher]], *, shared: bool = False) -> None:
    """The same in asyncio, on the loop that is quickest. `shared`: a pusher has all connections it needs."""
    import uvloop

    uvloop.run(_drive_async(connect, shared))


async def _drive_async(connect: Callable[[], Awaitable[AsyncPusher]], shared: bool) -> None:
    orders: dict[str, Callable[..., Awaitable[Told]]]
    orders = {"many": _many_async, "single": _single_async, "paced": _paced_async}
    pushers = [await connect()]
    _answer({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        while len(pushers) < order.get("connections", 1):
            pushers.append(pushers[0] if shared else await connect())
        _answer(await orders[order.pop("do")](pushers, **order))


async def _many_async(pushers: list[AsyncPusher], first: int, count: int, seconds: float) -> Told:
    deadline_s, began_ns, pushed = time.monotonic() + seconds, time.monotonic_ns(), 0
    while pushed < count and time.monotonic() < deadline_s:
        size = min(ARRAY, count - pushed)
        await pushers[0].many([argument(first + pushed + place) for place in range(size)])
        pushed += size
    return {"pushed": pushed, "began_ns": began_ns}


async def _single_async(pushers: list[AsyncPusher], first: int, connections: int, seconds: float) -> Told:
    began_ns, counts = time.monotonic_ns(), [0] * connections
    deadline_s = time.monotonic() + seconds

    async def push(place: int) -> None:
        while time.monotonic() < deadline_s:
            await pushers[place].one(argument(first + counts[place] * connections + place))
            counts[place] += 1

    await asyncio.gather(*map(push, range(connections)))
    return {"pushed": sum(counts), "began_ns": began_ns}


async def _paced_async(pushers: list[AsyncPusher], first: int, count: int, rate: float, delay: float) -> Told:
    began_ns = time.monotonic_ns() + int(delay * 1e9)
    for place in range(count):
        await asyncio.sleep(max(0.0, (began_ns + place * 1e9 / rate - time.monotonic_ns()) / 1e9))
        await pushers[0].one(argument(first + place))
    return {"pushed": count, "began_ns": began_ns}


def _answer(told: Told) -> None:
    print(json.dumps(told), flush=True)
