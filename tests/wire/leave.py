"""Clients that leave at every byte, on every route: nothing is left of them, neither a descriptor nor memory."""

import os
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import trio

from jqd.domain.media import JSON
from jqd.routes import ROUTES
from tests.wire.attack import AT_ONCE, Target, talk

ENDS = ("close", "reset")
BODY = b'{"name": "leaving", "argument": [1, 2, 3], "jobs": ["leaving"], "max_jobs": 1, "wait": 20}'
QUERY = {"/v1/jobs": b"?limit=1000"}
GROWTH_BYTES_MAX = 24 << 20  # of memory: caches and pools fill up; each connection that stays has some 30 KiB


def requests() -> Iterator[bytes]:
    """One of each route, whole."""
    for route in ROUTES:
        path = "/".join("x" if part.startswith("<") else part for part in route.path.split("/")).encode()
        head = b"%b %b%b HTTP/1.1\r\nHost: localhost\r\n" % (route.method.encode(), path, QUERY.get(route.path, b""))
        if route.body is None:
            yield head + b"\r\n"
        else:
            yield head + b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (JSON.encode(), len(BODY), BODY)


def cuts(source: random.Random | None, some: int) -> Sequence[tuple[bytes, str]]:
    """What is sent before a client leaves, and how it does: at every byte; by a source, whole and at `some` places."""
    found: list[tuple[bytes, str]] = []
    for data, end in product(requests(), ENDS):
        places = range(1, len(data) + 1)
        if source is not None:
            places = sorted({*source.sample(places, some), len(data)})  # type: ignore[assignment]
        found += [(data[:place], end) for place in places]
    return found


async def leave(target: Target, source: random.Random | None = None, some: int = 1) -> int:
    """All of them, several at once; says how many. Nothing is left behind then."""
    began = memory(target)
    sent = cuts(source, some)
    for start in range(0, len(sent), AT_ONCE):
        async with trio.open_nursery() as nursery:
            for data, end in sent[start : start + AT_ONCE]:
                nursery.start_soon(talk, target.port, [data], end)
    target.unheard += len(sent)
    await target.rests()
    grown = memory(target) - began
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MiB are left behind by {len(sent)} clients"
    return len(sent)


def memory(target: Target) -> int:
    """Bytes that its process has."""
    pages = int(Path(f"/proc/{target.process.child.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
