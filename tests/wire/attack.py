"""Sends bytes to a daemon or a worker that really runs, and looks at what became of it, of them, and of the jobs."""

import json
import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import trio

from jqd.domain.descriptors import RESERVE_PARTITION
from tests import stalls
from tests.directories import short_directory
from tests.live.harness import START_S, Daemon, Process
from tests.stalls import check, read_steps
from tests.wire.corpus import ANYWHERE, CLOSE, DAEMON, WORKER, Case

ANSWER_S = 20.0  # longer than any deadline that a case here can meet
SETTLE_S = 15.0  # for descriptors to be given back and jobs to be applied
AT_ONCE = 10  # connections
LISTENS = "0A"  # a state in /proc/net/tcp; an inode of 0 there belongs to nobody any more
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + CLOSE + b"\r\n"


@dataclass
class Answer:
    """One answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def value(self) -> Any:
        """What it says."""
        kind = self.headers.get(b"content-type", b"")
        if b"json" in kind:
            return json.loads(self.body)
        return msgspec.msgpack.decode(self.body) if b"msgpack" in kind else self.body

    def problem(self) -> str | None:
        """Why it is no good answer."""
        if 200 <= self.status < 300:
            return None
        kind = self.headers.get(b"content-type", b"")
        told: Any = self.value() if kind.startswith(b"application/") else {}
        # As Skygear's clients know it.
        error = told.get("error")
        named = isinstance(error, dict) and {"name", "code", "message"} <= error.keys()
        if not named and kind not in (b"application/problem+json", b"application/msgpack"):
            return f"{self.status} is no problem document but {kind!r}: {self.body[:80]!r}"
        if self.status >= 500 and self.status not in (501, 503, 505, 507):
            return f"an internal error: {told}"
        says = told.get("status")
        return None if named or says == self.status else f"{self.status} says that it is {says}: {told}"

    def job_ids(self) -> list[str]:
        """The jobs it says were taken."""
        if self.status not in (201, 207):
            return []
        told = self.value()
        return [told["job_id"]] if "job_id" in told else [each for each in told.get("job_ids", ()) if each]


def parse(data: bytes) -> tuple[list[Answer], bytes]:
    """The answers, and what is left that is no whole one."""
    found: list[Answer] = []
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end or not head.startswith(b"HTTP/1.1 "):
            return found, data
        first, *lines = head.split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        status = int(first.split()[1])
        if status >= 200:
            if headers.get(b"transfer-encoding") == b"chunked":
                body, end, rest = rest.partition(b"0\r\n\r\n")
                complete = bool(end)
            else:
                length = int(headers.get(b"content-length", b"0"))
                body, rest, complete = rest[:length], rest[length:], len(rest) >= length
            if not complete:
                return found, data
            found.append(Answer(status, headers, body))
        data = rest


@dataclass
class Target:
    """A process that listens."""

    name: str
    process: Process
    port: int
    cases: dict[str, Case]
    taken: set[str] = field(default_factory=set)
    """Ids of jobs that were acknowledged to us."""
    unheard: int = 0
    """Requests whose answers we did not wait for."""
    descriptors: int = 1_000
    """Open at rest; the store's client may open more of its own as it is used."""
    steps: Path | None = None
    """To which it writes the long steps of its loop."""
    began_s: float = 0.0

    async def begin(self) -> None:
        """Take note of how it looks at rest."""
        await self.lives()
        self.began_s = time.monotonic()
        await self.rests()
        self.descriptors = self._descriptors()

    async def lives(self) -> None:
        """The same process still answers."""
        assert self.process.child.poll() is None, f"it ended: {self.process.log.read_text()[-3_000:]}"
        data, _ = await talk(self.port, [LIVEZ], "wait")
        (answer,), left = parse(data)
        assert (answer.status, left) == (200, b"")

    async def rests(self) -> None:
        """Nothing of the connections is left, and its loop never stood still."""
        await self.lives()
        with trio.move_on_after(SETTLE_S):
            while self._connections():
                await trio.sleep(0.05)
        assert not self._connections(), "connections are left behind"
        assert self._descriptors() <= self.descriptors + RESERVE_PARTITION, "descriptors are left behind"
        if self.steps is not None:
            check(read_steps(self.steps, self.began_s))

    def hear(self, data: bytes, *, whole: bool) -> list[Answer]:
        """Look at answers. Raises AssertionError for one that is none."""
        answers, left = parse(data)
        assert not (whole and left), f"no answer: {left[:200]!r}"
        for answer in answers:
            problem = answer.problem()
            assert problem is None, problem
            self.taken.update(answer.job_ids())
        return answers

    async def holds(self) -> None:
        """The jobs it has are those it said it had taken; beside them at most what nobody waited to hear of."""
        with trio.move_on_after(SETTLE_S):
            while (stored := await trio.to_thread.run_sync(self._stored)) < len(self.taken):
                await trio.sleep(0.05)
        assert len(self.taken) <= stored <= len(self.taken) + self.unheard, (stored, len(self.taken), self.unheard)

    def _stored(self) -> int:
        """How many jobs are in the store, once all that was journaled is."""
        stats = httpx2.get(f"http://127.0.0.1:{self.port}/v1/stats", headers={"accept": "application/json"}).json()
        lane = stats["lanes"]["jobs"]
        if lane["applied"] != lane["end"]:
            return -1
        return sum(stats["store"][name] for name in ("waiting", "scheduled", "running", "ended", "dead"))

    def _descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.child.pid}/fd").iterdir()))

    def _connections(self) -> int:
        """How many sockets on its port it holds, besides the one that listens."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(f":{self.port:04X}") and row[3] != LISTENS and row[9] != "0" for row in rows)


async def talk(port: int, pieces: Iterable[bytes], end: str) -> tuple[bytes, bool]:
    """Send, and say all that came back, and whether the other side has said its last word.

    `end`: "wait" until the other side closes; "finish" sending and then wait; "close" or "reset" without waiting.
    """
    data = b""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:

        async def send() -> None:
            try:
                for piece in pieces:
                    await stream.send_all(piece)
                    await trio.lowlevel.checkpoint()
                if end == "finish":
                    await stream.send_eof()
            except trio.BrokenResourceError:
                return  # it was refused before all was said; the answer tells why

        if end in ("close", "reset"):
            await send()
            if end == "reset":
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b"", False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with trio.move_on_after(ANSWER_S) as patience:
                try:
                    while piece := await stream.receive_some():
                        data += piece
                except trio.BrokenResourceError:
                    return data, False
            nursery.cancel_scope.cancel()
    assert not patience.cancelled_caught, f"after {ANSWER_S} s the connection is still open; it said {data!r}"
    return data, True


async def send_corpus(target: Target, times: int) -> None:
    """Every case, so often, several at once."""
    for name, case in {**ANYWHERE, **target.cases}.items():

        async def one(name: str = name, case: Case = case) -> None:
            data, whole = await talk(target.port, [case.data], "finish" if case.ends else "wait")
            assert whole, f"{name}: the connection was broken off"
            answers = target.hear(data, whole=True)
            statuses = tuple(answer.status for answer in answers)
            assert case.statuses in (None, statuses), f"{name}: {statuses} {answers}"

        left = times
        while left:
            async with trio.open_nursery() as nursery:
                for _ in range(min(left, AT_ONCE)):
                    left -= 1
                    nursery.start_soon(one)
        await target.lives()


# ---------------------------------------------------------------- mutations

TOKENS = (
    b"\r\n|\n|\r|\0| |:|\xff|%00|//|?|#|0\r\n\r\n|Content-Length: 3\r\n|Transfer-Encoding: chunked\r\n|-1"
    b"|application/msgpack|Connection: close\r\n|Upgrade: h2c\r\n|Expect: 100-continue\r\n|HEAD|HTTP/1.0|HTTP/2.0"
    b"|99999999999999999999|\x91\x81|PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n|GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"|[[[[[[[[[[[[[[[[[[[[[[|\xdd\x00\x10\x00\x00"
).split(b"|")
SIZE_MAX = 200_000  # of a case that is mutated: larger ones take their time for nothing
ENDS = ["finish"] * 6 + ["close", "reset"]


def mutate(data: bytes, other: bytes, source: random.Random) -> bytes:
    """Another request, not far from this one."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3, 8))):
        at = source.randrange(len(out) + 1)
        match source.randrange(7):
            case 0 if out:
                out[at % len(out)] ^= 1 << source.randrange(8)
            case 1:
                out[at:at] = source.choice(TOKENS)
            case 2:
                del out[at : at + source.choice((1, 1, 2, 5, 30))]
            case 3:
                out[at:at] = out[max(0, at - source.randrange(60)) : at]
            case 4:
                out[at:] = other[source.randrange(len(other) + 1) :]
            case 5:
                out[at:at] = source.randbytes(source.choice((1, 2, 9)))
            case _:
                out[at : at + 1] = source.choice(TOKENS)
    return bytes(out)


def cut(data: bytes, source: random.Random) -> list[bytes]:
    """As it may come in packets."""
    places = sorted(source.randrange(len(data) + 1) for _ in range(source.choice((0, 0, 1, 4))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


async def send_mutations(target: Target, rounds: int, source: random.Random) -> None:
    """So many rounds of AT_ONCE connections each."""
    cases = [case.data for case in {**ANYWHERE, **target.cases}.values() if len(case.data) < SIZE_MAX]
    for _ in range(rounds):
        sent = [mutate(source.choice(cases), source.choice(cases), source) for _ in range(AT_ONCE)]

        async def one(data: bytes, pieces: Sequence[bytes], end: str) -> None:
            said, whole = await talk(target.port, pieces, end)
            try:
                # Nothing is known of the answers to a request that may be anything: one without a body, say.
                target.hear(said, whole=whole and b"HEAD" not in data)
            except (AssertionError, ValueError, KeyError) as error:
                raise AssertionError(f"{error}\nsent: {data!r} then {end}") from error
            if end != "finish" or not whole or b"HEAD" in data or b"Connection: close" not in data:
                target.unheard += data.count(b"argument") + 3

        async with trio.open_nursery() as nursery:
            for data in sent:
                nursery.start_soon(one, data, cut(data, source), source.choice(ENDS))
        await target.lives()


# ---------------------------------------------------------------- processes


@contextmanager
def targets() -> Iterator[list[Target]]:
    """A daemon that nobody runs jobs for, and a worker that nobody sends any."""
    with short_directory() as base, Daemon(base / "d", guarded=True) as daemon, Worker(base) as worker:
        deadline_s = time.monotonic() + START_S
        while "worker.serving" not in worker.log.read_text():
            assert time.monotonic() < deadline_s, worker.log.read_text()
            time.sleep(0.05)
        yield [
            Target("daemon", daemon, int(daemon.url.rpartition(":")[2]), DAEMON, steps=daemon.steps),
            Target("worker", worker, worker.port, WORKER, steps=worker.steps),
        ]


class Worker(Process):
    """`jqd worker` without a daemon."""

    def __init__(self, base: Path) -> None:
        self.steps = base / "w.steps"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        args = [
            "worker",
            "tests.live.recorder:app",
            "--daemon",
            "http://127.0.0.1:9",
            "--bind",
            f"127.0.0.1:{self.port}",
        ]
        super().__init__(args, base / "w.log", {stalls.FILE: str(self.steps)}, program=stalls.PROGRAM)
