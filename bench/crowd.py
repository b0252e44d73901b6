"""Clients that nobody wants, in a process of their own: `python -m bench.crowd slow|flood|arrays PORT CONNECTIONS`.

    slow    a third never end their head, a third never end their body (a byte a second each), a third never read the
            answer they asked for; those that are cut off come again
    flood   single pushes, one after another on each connection, as fast as they are answered
    arrays  the same with arrays of 16 MB: of many small values, or of 10,000 jobs with 32 tags, in turns

They come from 127.0.0.2, so that the honest ones have an address of their own. A line says when all are there.
"""

import random
import re
import socket
import sys
from collections.abc import Sequence
from itertools import cycle

import msgspec
import trio

HOST = "127.0.0.2"
BODY = msgspec.msgpack.encode({"name": "flood", "argument": "x" * 200})
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"

SMALL_VALUES = [{"name": "flood", "argument": [1] * 8_000}] * 2_000
TAGGED = [{"name": "flood", "tags": [f"tag {number}" for number in range(32)]}] * 10_000
ARRAYS = [msgspec.msgpack.encode(jobs) for jobs in (SMALL_VALUES, TAGGED)]
BEGUN = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",  # a head that goes on
    HEAD + b"Content-Length: 100000\r\n\r\n",  # and a body
    b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8,  # answers that are larger than what the kernel keeps
)
DRIP_S = 1.0
OPENING = 64  # at once
LENGTH = re.compile(rb"(?i)content-length: (\d+)")


async def slow(port: int, number: int) -> None:
    """Never returns."""
    limiter, opened = trio.CapacityLimiter(OPENING), 0

    async def one(kind: int) -> None:
        nonlocal opened
        while True:
            try:
                async with limiter:
                    stream = await _open(port, small=kind == 2)
                    await stream.send_all(BEGUN[kind])
                opened += 1
                if opened == number:
                    print("ready", flush=True)
                while kind < 2:
                    await trio.sleep(DRIP_S * random.uniform(0.5, 1.5))
                    await stream.send_all(b"x")
                await trio.sleep_forever()
            except (OSError, trio.BrokenResourceError):
                await trio.sleep(DRIP_S * random.random())  # cut off: that is what is to be

    async with trio.open_nursery() as nursery:
        for place in range(number):
            nursery.start_soon(one, place % 3)


async def flood(port: int, number: int, bodies: Sequence[bytes] = (BODY,)) -> None:
    """Never returns."""
    ready = 0

    async def one() -> None:
        nonlocal ready
        stream = await _open(port)
        for request in cycle(map(_whole, bodies)):
            await stream.send_all(request)
            answer = await stream.receive_some(65_536)
            assert answer.startswith((b"HTTP/1.1 201", b"HTTP/1.1 429")), answer
            _, _, told = answer.partition(b"\r\n\r\n")
            length = LENGTH.search(answer)
            assert length is not None
            left = int(length[1]) - len(told)
            while left:
                left -= len(await stream.receive_some(left))
            ready += 1
            if ready == number:
                print("ready", flush=True)

    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(one)


async def arrays(port: int, number: int) -> None:
    """Never returns."""
    await flood(port, number, ARRAYS)


def _whole(body: bytes) -> bytes:
    """The request that pushes it."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def _open(port: int, *, small: bool = False) -> trio.SocketStream:
    sock = trio.socket.socket()
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    await sock.bind((HOST, 0))
    await sock.connect(("127.0.0.1", port))
    return trio.SocketStream(sock)


if __name__ == "__main__":
    trio.run({"slow": slow, "flood": flood, "arrays": arrays}[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3]))
