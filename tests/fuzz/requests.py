"""Requests that are requests, with anything in them, to every route of a daemon that really runs: none gets a 5xx, and
its memory does not grow with their number."""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import trio

from jqd.api.route import Route
from jqd.api.routes import ROUTES
from tests.live.harness import Daemon, short_directory
from tests.wire.attack import Answer, mutate, parse

CONNECTIONS = 8
KEPT_IDS = 200  # of jobs that were taken, to be asked for
WARM_SHARE = 4  # one part in so many of all, before memory is looked at: caches and pools fill up to their limits
GROWTH_MB_MAX = 32.0  # from then on
ODD = (
    "",
    "0",
    "-1",
    "nan",
    "1e999",
    "true",
    "9" * 30,
    "é",
    "%00",
    "a/b",
    "x" * 300,
    "2030-01-01T00:00:00Z",
    "[]",
    "{}",
)


NEEDED = frozenset(
    {"name", "argument", "max_jobs", "jobs", "every", "job", "lang", "body", "type", "lease_id", "job_id"}
)
GOOD: dict[str, Any] = {
    **dict.fromkeys(("name", "worker_id", "group", "reason", "message"), "fuzz"),
    **dict.fromkeys(("priority", "max_retry", "max_jobs", "limit", "timeout", "ttl", "lease_id", "batch"), 2),
    **dict.fromkeys(("keep_result", "replace", "should_retry", "dry_run"), True),
    **dict.fromkeys(("url", "body"), "http://127.0.0.1:9/x"),
    "argument": [1],
    "delay": 3_600,
    "tags": ["t"],
    "jobs": ["fuzz"],
    "job": {"name": "fuzz", "priority": 1},
    "every": 3_600,
    "tz": "UTC",
    "lang": "http",
    "type": "success",
    "state": "failed",
    "result": 1,
    "older": 0,
    "job_id": "mine",
    "missed": "skip",
    "overlap": "skip",
    "style": "native",
    "format": "json",
    "wait": 0,
}


def _named(kind: Any) -> Iterator[str]:
    """The fields of a type, or of several."""
    for one in kind if isinstance(kind, tuple) else get_args(kind) or (kind,):
        yield from getattr(one, "__struct_encode_fields__", ())


NAMES = sorted({name for route in ROUTES for kind in (route.body, route.query) for name in _named(kind)})


def value(source: random.Random, depth: int = 0) -> Any:
    """Anything."""
    match source.randrange(9 if depth < 3 else 7):
        case 0:
            return None
        case 1:
            return source.choice((True, False))
        case 2:
            return source.choice((0, 1, -1, 5, 2**31, 2**63 - 1, -(2**63)))
        case 3:
            return source.choice((0.5, -0.0, 1e300, 1e-300))
        case 4:
            return source.randbytes(source.randrange(5)).hex()
        case 5 | 6:
            return source.choice(ODD)
        case 7:
            return [value(source, depth + 1) for _ in range(source.randrange(4))]
    return fields(source, depth + 1)


def fields(source: random.Random, depth: int = 0) -> dict[str, Any]:
    """A map of fields that mean something somewhere."""
    return {source.choice(NAMES): value(source, depth) for _ in range(source.randrange(5))}


def body_of(route: Route, source: random.Random) -> Any:
    """What that call takes, nearly: often good, with fields left out, and some that are odd."""
    kinds = route.body if isinstance(route.body, tuple) else (route.body,)
    kind = source.choice(kinds)
    if many := get_args(kind):
        return [_one(many[0], source) for _ in range(source.randrange(4))]
    return _one(kind, source) if kind is not None else fields(source)


def _one(kind: Any, source: random.Random) -> Any:
    told: dict[str, Any] = {}
    for name in getattr(kind, "__struct_encode_fields__", NAMES[:5]):
        if name in NEEDED or source.random() < 0.3:
            told[name] = GOOD[name] if name in GOOD and source.random() < 0.9 else value(source)
    return told if source.random() < 0.9 else {**told, **fields(source)}


def request(route: Route, ids: list[str], source: random.Random) -> bytes:
    """One of them, whole."""
    path = re.sub(r"<\w+>", lambda _: _piece(ids, source), route.path)
    if source.random() < 0.3:
        path += "?" + "&".join(
            f"{source.choice(NAMES)}={_quoted(source.choice(ODD))}" for _ in range(source.randrange(4))
        )
    method = (
        route.method if source.random() < 0.95 else source.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"))
    )
    packed = source.random() < 0.5
    shape: Any = body_of(route, source) if source.random() < 0.9 else value(source)
    body = msgspec.msgpack.encode(shape) if packed else json.dumps(shape).encode()
    if source.random() < 0.2:
        body = mutate(body, body, source)
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: application/{'msgpack' if packed else 'json'}",
        f"Accept: application/{source.choice(('json', 'msgpack'))}",
        f"Content-Length: {len(body)}",
        *(("worker-id: w",) if source.random() < 0.1 else ()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _piece(ids: list[str], source: random.Random) -> str:
    told = source.choice(ids) if ids and source.random() < 0.7 else source.choice(ODD)
    return _quoted(told) or "x"


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" if not (48 <= byte < 58 or 97 <= byte < 123) else chr(byte) for byte in text.encode())


class Client:
    """One connection after another, on which requests follow each other."""

    def __init__(self, port: int, ids: list[str], told: Counter[int], source: random.Random) -> None:
        self._port = port
        self._ids = ids
        self._told = told
        self._source = source
        self._stream: trio.SocketStream | None = None

    async def ask(self) -> None:
        """Send one and judge its answer."""
        # A poll that waits would only take time.
        route = self._source.choice([route for route in ROUTES if not route.polls or self._source.random() < 0.2])
        data = request(route, self._ids, self._source)
        if b"wait=" in data or b'"wait"' in data or b"\xa4wait" in data or b"timeout=" in data:
            return
        answer = await self._exchange(data)
        if answer is None:
            return
        self._told[answer.status] += 1
        assert answer.status < 500, f"{data!r}\nwas answered {answer.status} {answer.body!r}"
        if not data.startswith(b"HEAD"):
            problem = answer.problem() if answer.status >= 400 else None
            assert problem is None, f"{data!r}: {problem}"
        if answer.status in (200, 201, 207) and route.path == "/v1/jobs":
            self._ids += answer.job_ids()
            del self._ids[:-KEPT_IDS]

    async def _exchange(self, data: bytes) -> Answer | None:
        if self._stream is None:
            self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        heard = b""
        try:
            await self._stream.send_all(data)
            with trio.fail_after(60):
                while True:
                    piece = await self._stream.receive_some()
                    heard += piece
                    if data.startswith(b"HEAD"):  # what its answer would be long is said, and does not come
                        heard = re.sub(rb"(?i)content-length: \d+\r\n", b"", heard)
                    answers, _ = parse(heard)
                    if answers or not piece:
                        break
        except trio.BrokenResourceError:
            answers, _ = parse(heard)
        if not answers or b"connection: close" in heard.lower():
            await trio.aclose_forcefully(self._stream)
            self._stream = None
        assert answers, f"{data!r}\nhad no answer: {heard!r}"
        return answers[0]


async def ask(port: int, requests: int, source: random.Random, told: Counter[int], ids: list[str]) -> None:
    """So many, over a few connections."""
    left = requests

    async def one() -> None:
        nonlocal left
        client = Client(port, ids, told, source)
        while left > 0:
            left -= 1
            await client.ask()

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(one)


def memory_mb(pid: int) -> float:
    """What the process has of the machine's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4_096 / 1e6


def run(requests: int, source: random.Random) -> str:
    """Raises AssertionError for an answer that is none; returns what was seen."""
    told: Counter[int] = Counter()
    ids: list[str] = []
    with short_directory() as base, Daemon(base / "d", env={"JQD_LOG__LEVEL": "error"}) as daemon:
        port, pid = int(daemon.url.rpartition(":")[2]), daemon.child.pid
        began_s = time.monotonic()
        trio.run(ask, port, requests // WARM_SHARE, source, told, ids)
        warm_mb = memory_mb(pid)
        trio.run(ask, port, requests - requests // WARM_SHARE, source, told, ids)
        took_s, grown_mb = time.monotonic() - began_s, memory_mb(pid) - warm_mb
        assert daemon.stop(60) == 0
        assert "api.failed" not in daemon.log.read_text()
    assert grown_mb <= GROWTH_MB_MAX, f"{grown_mb:.1f} MB more after {requests} requests"
    statuses = ", ".join(f"{status}: {number}" for status, number in sorted(told.items()))
    return (
        f"{sum(told.values())} requests in {took_s:.0f} s; {statuses}; {warm_mb:.1f} MB, {grown_mb:+.1f} MB at the end"
    )
