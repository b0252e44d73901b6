"""Requests that are requests, with anything in them, to every route of a daemon that really runs and asks for tokens:
none gets a 5xx, and its memory does not grow with their number.

They come from people of several tenants and all roles, and from some who show no token or a wrong one; one tenant has
a quota that is spent soon. Some come again under an Idempotency-Key, some speak for a tenant that is not theirs.
"""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx2
import msgspec
import trio

from jqd.api.route import Route
from jqd.domain.root_token import FILE
from jqd.domain.tokens import Role
from jqd.routes import ROUTES
from tests.directories import short_directory
from tests.live.harness import Daemon, wait_for
from tests.stalls import unstalled
from tests.wire.attack import Answer, mutate, parse

CONNECTIONS = 8
MANY = 20_000  # requests, of which some of every call are good
KEPT_IDS = 200  # of jobs that were taken, to be asked for
WARM_SHARE = 4  # one part in so many of all, before memory is looked at: caches and pools fill up to their limits
GROWTH_MB_MAX = 32.0  # from then on
SECRET = "the master key of these"
ENV = {
    "JQD_LOG__LEVEL": "error",
    "JQD_HTTP__TOKENS": "required",
    "JQD_API__MASTER_KEY": SECRET,
    "JQD_API__WAIT_S_MAX": "0.05",  # nobody ends the jobs that are waited for
    "JQD_RUNNER__WORKER_NETWORKS": '["127.0.0.0/8"]',  # invented workers are asked for nothing elsewhere
}
PEOPLE = (
    *((role, tenant, ()) for role in (*Role, *(Role.MASTER,) * 6) for tenant in ("", "acme")),  # most may do all
    *(("push", "small", ()),) * 5,
    ("push", "acme", ("fuzz", "mail*")),
    ("worker", "acme", ("fuzz",)),
)
QUOTAS = {"small": {"rate": 0.01, "queued": 50}, "acme": {"bytes": 1_000_000, "in_flight": 5_000}}
WRONG = ("", "Bearer", "Bearer x", "Basic eDp5", f"Bearer jqd_{'0' * 16}_{'A' * 43}", "Bearer " + "é" * 40)
KEYS = ("k", '"k"', "order-17", "", "x" * 256, "\t")
TENANTS = ("acme", "small", "nobody", "", "A B", "x" * 200)
MATCHES = ("job.name == 'fuzz'", "job.priority > 1", "'t' in job.tags", "job.argument.n", "[1].map(x, x)", "true", "(")
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


# What is well answered only to who knows the daemon's id, is a worker or holds a job: the suite has these elsewhere.
LUCKY = frozenset(
    {
        "POST /done",
        "POST /v1/daemons/<daemon>/drain",
        "POST /v1/daemons/<daemon>/resume",
        "POST /v1/jobs/<job_id>/heartbeat",
        "POST /v1/leases",
    }
)
SKYGEAR = {"api_key": SECRET, "action": "job:enqueue", "job": {"action": "fuzz", "args": [1]}}
NEEDED = frozenset(
    {"name", "argument", "max_jobs", "jobs", "every", "job", "lang", "body", "type", "lease_id", "job_id", "role"}
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
    "role": "push",
    "tenant": "acme",
    "scopes": ["fuzz*"],
    "note": "fuzz",
    "expires_in": 60,
    "match": MATCHES[0],
    "rate": {"limit": 5, "per_s": 1},
    "concurrency": 3,
    "key": "job.name",
    "search": "fuzz",
    "queued": 5_000,
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


class World:
    """What the requests are made of: who asks, and what there is to ask for."""

    def __init__(self, tokens: list[str], source: random.Random) -> None:
        self.tokens = tokens
        self.ids: list[str] = []
        """Of jobs that were taken, and of workers and tokens that were made."""
        self.source = source
        self.told: Counter[int] = Counter()
        self.heard: Counter[str] = Counter()
        """Calls that somebody got a good answer to."""

    def keep(self, answer: Answer) -> None:
        """Note what the answer says that there is now."""
        made: Any = answer.value() if answer.status in (200, 201, 207) else {}
        if isinstance(made, dict):
            told = [made.get(name) for name in ("job_id", "worker_id", "token_id")] + (made.get("job_ids") or [])
            self.ids += [each for each in told if isinstance(each, str)]
            del self.ids[:-KEPT_IDS]

    def headers(self) -> list[str]:
        """Who asks, and for whom."""
        source, found = self.source, list[str]()
        if source.random() < 0.9:
            found.append(f"Authorization: Bearer {source.choice(self.tokens)}")
        elif source.random() < 0.7:
            found.append(f"Authorization: {source.choice(WRONG)}")
        chances = (
            ("JQD-Tenant", 0.1, TENANTS),
            ("Idempotency-Key", 0.1, KEYS),
            ("worker-id", 0.1, ("w", *self.ids[-3:])),
            ("X-Skygear-Api-Key", 0.2, (SECRET, "x")),
        )
        found += [f"{name}: {source.choice(values)}" for name, chance, values in chances if source.random() < chance]
        return found


def request(route: Route, world: World) -> bytes:
    """One of them, whole."""
    source = world.source
    path = re.sub(r"<\w+>", lambda _: _piece(world.ids, source), route.path)
    query = [f"{source.choice(NAMES)}={_quoted(source.choice(ODD))}" for _ in range(source.randrange(4))]
    if route.query is not None and source.random() < 0.5:  # what the call has, often well said
        known = [name for name in _named(route.query) if source.random() < 0.3]
        query = [f"{name}={_quoted(str(GOOD.get(name, source.choice(ODD))))}" for name in known]
    elif source.random() < 0.6:
        query = []
    if route.path == "/v1/events":  # else it has no end
        query.append("seconds=0.01")
    path += "?" * bool(query) + "&".join(query)
    method = (
        route.method if source.random() < 0.95 else source.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"))
    )
    packed = source.random() < 0.5
    shape: Any = body_of(route, source) if source.random() < 0.9 else value(source)
    if isinstance(shape, dict) and route.path in ("/", "/job/enqueue") and source.random() < 0.5:
        shape |= SKYGEAR
    if isinstance(shape, dict) and "match" in shape and source.random() < 0.7:
        shape["match"] = source.choice(MATCHES)
    body = msgspec.msgpack.encode(shape) if packed else json.dumps(shape).encode()
    if source.random() < 0.2:
        body = mutate(body, body, source)
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: application/{'msgpack' if packed else 'json'}",
        f"Accept: application/{source.choice(('json', 'msgpack'))}",
        f"Content-Length: {len(body)}",
        *world.headers(),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _piece(ids: list[str], source: random.Random) -> str:
    told = source.choice(ids) if ids and source.random() < 0.7 else source.choice(ODD)
    return _quoted(told) or "x"


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" if not (48 <= byte < 58 or 97 <= byte < 123) else chr(byte) for byte in text.encode())


class Client:
    """One connection after another, on which requests follow each other."""

    def __init__(self, port: int, world: World) -> None:
        self._port = port
        self._world = world
        self._stream: trio.SocketStream | None = None

    async def ask(self) -> None:
        """Send one and judge its answer."""
        source, world = self._world.source, self._world
        # A poll that waits would only take time.
        route = source.choice([route for route in ROUTES if not route.polls or source.random() < 0.2])
        data = request(route, world)
        answer = await self._exchange(data)
        world.told[answer.status] += 1
        if data.startswith(b"HEAD"):
            assert answer.status < 500, f"{data!r}\nwas answered {answer.status}"
            return
        # LightJQ's and Skygear's have no word for a quota that is spent but that it cannot be done now.
        spent = answer.status == 503 and b"the quota of tenant" in answer.body and not route.path.startswith("/v1/")
        assert answer.status < 500 or spent, f"{data!r}\nwas answered {answer.status} {answer.body!r}"
        if answer.status < 400:
            world.heard[f"{route.method} {route.path}"] += 1
            world.keep(answer)
        elif not (answer.status == 408 and "polling" in route.path):  # LightJQ's answer to who waited in vain
            problem = answer.problem()
            assert problem is None, f"{data!r}: {problem}"

    async def _exchange(self, data: bytes) -> Answer:
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


async def ask(port: int, requests: int, world: World) -> None:
    """So many, over a few connections."""
    left = requests

    async def one() -> None:
        nonlocal left
        client = Client(port, world)
        while left > 0:
            left -= 1
            await client.ask()

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(one)


def memory_mb(pid: int) -> float:
    """What the process has of the machine's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4_096 / 1e6


def people(daemon: Daemon, data_dir: Path) -> list[str]:
    """Tokens of all kinds, made by the daemon's own; and quotas. None of them is an id that a request may name."""
    root = json.loads((data_dir / FILE).read_text())["token"]
    found = []
    with httpx2.Client(base_url=daemon.url, headers={"authorization": f"Bearer {root}"}, timeout=30) as http:
        for role, tenant, scopes in PEOPLE:
            more = {"tenant": tenant, "scopes": scopes}
            made = http.post("/v1/tokens", json={"role": role, **{name: said for name, said in more.items() if said}})
            assert made.status_code == 201, made.text
            found.append(made.json()["token"])
        for tenant, allowance in QUOTAS.items():
            assert http.put(f"/v1/quotas/{tenant}", json=allowance).status_code == 200
    return found


def run(requests: int, source: random.Random) -> str:
    """Raises AssertionError for an answer that is none; returns what was seen."""
    with short_directory() as base, Daemon(base / "d", env=ENV, guarded=True) as daemon:
        world = World(people(daemon, base / "d"), source)
        port, pid = int(daemon.url.rpartition(":")[2]), daemon.child.pid
        wait_for(lambda: daemon.get("/readyz/run").status_code == 200, "it runs no jobs")
        began_s = time.monotonic()
        with unstalled(daemon.steps):
            trio.run(ask, port, requests // WARM_SHARE, world)
            warm_mb = memory_mb(pid)
            trio.run(ask, port, requests - requests // WARM_SHARE, world)
        took_s, grown_mb = time.monotonic() - began_s, memory_mb(pid) - warm_mb
        assert daemon.stop(60) == 0
        assert "api.failed" not in daemon.log.read_text()
    assert grown_mb <= GROWTH_MB_MAX, f"{grown_mb:.1f} MB more after {requests} requests"
    never = {f"{route.method} {route.path}" for route in ROUTES} - {*world.heard}
    never -= LUCKY
    assert not never or requests < MANY, f"nobody got a good answer to {', '.join(sorted(never))}"
    statuses = ", ".join(f"{status}: {number}" for status, number in sorted(world.told.items()))
    return (
        f"{sum(world.told.values())} requests in {took_s:.0f} s; {statuses}; {warm_mb:.1f} MB, {grown_mb:+.1f} MB at "
        f"the end; no good answer to {len(never)} calls"
    )
