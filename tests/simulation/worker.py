"""Workers as the runner's connections see them: requests arrive, jobs run for a while, answers trickle back.

Takes the place of the pool of HTTP connections, so everything of the runner above it is the real thing. A worker goes
on with what it has when the daemon that sent it is gone, as real ones do.
"""

import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import trio

from jqd.runner.protocols.protocol import Request
from jqd.runner.transport.http1 import LostError, Origin
from jqd.runner.transport.network import UnreachedError
from tests.simulation.pressed import PAUSE_S
from tests.simulation.work import Work, body_of, number_of, result_of

HOSTS = ("w1", "w2")
SLOTS = 3  # jobs one worker has at once
HEADERS = {b"content-type": "application/msgpack", b"transfer-encoding": "chunked"}
CONNECT_S = 1.5  # a connection that takes time takes at most so long
SLOWLY = 0.1  # share of connections that take time
SLOWLY_TOLD = 0.5  # the same of those that tell a worker to stop: by then the job may be there with other content
SLOW_END_S = 0.3  # from a hasty worker's 202 to its last byte, at most
LATER = 0.3  # share of requests that a worker answers with 202, where some do

_decoder = msgspec.msgpack.Decoder()
_encoder = msgspec.msgpack.Encoder()
Started = Callable[[str, int], None]
Asked = Callable[[str, Sequence[str], bool], None]
"""Told of each request: its worker, its jobs, and whether it refuses them."""


class Workers:
    """All workers of the world."""

    def __init__(self, works: Mapping[int, Work], source: random.Random, spawn: Callable[..., None]) -> None:
        self.down: set[str] = set()
        """Hosts nobody reaches."""
        self._works = works
        self._source = source
        self._spawn = spawn
        self.accept: Callable[[str, int, Sequence[tuple[str, int, str, float]]], None] | None = None
        """Told of a batch that a worker answers with 202: its name, the fence, and id, number and end of each job."""
        self.anew: Callable[[str, Collection[str]], bool] = lambda worker, job_ids: True
        """Asked of each batch: whether that worker reports none of these jobs, as it had it before, in this moment."""
        self.slow_ends: random.Random | None = None
        """What draws how long a 202 takes to its last byte, where workers are hasty."""
        self.took: Callable[[str, object], None] = lambda job_id, argument: None
        """Told of each argument that a worker gets."""
        self._begun: dict[int, int] = {}
        self._batches: dict[str, str] = {}
        """Job id → the batch that it came in last."""

    def pool(
        self,
        *,
        started: Started,
        asked: Asked,
        dead: Callable[[], bool],
        murder: Callable[[], None],
        stopped: Callable[[str], None],
    ) -> "Pool":
        """The connections of one life of a daemon. `started`: told of each job (id, number) when a worker has it.

        `murder` kills that daemon; `stopped`: told of each job whose worker is told to stop.
        """
        return Pool(self, self._source, started, asked, dead, murder, stopped)

    def is_meant(self, job_id: str, batch_id: str | None) -> bool:
        """Whether a worker that is told to stop with a job has what is meant, and not what came after that."""
        return batch_id is None or self._batches.get(job_id) == batch_id

    def attempt(self, number: int) -> tuple[str, float]:
        """How the next attempt of that job ends, and when; it begins now."""
        end = self._next(number)
        self._begun[number] = self._begun.get(number, 0) + 1
        return end

    def _next(self, number: int) -> tuple[str, float]:
        attempts = self._works[number].attempts
        return attempts[min(self._begun.get(number, 0), len(attempts) - 1)]

    def begin(
        self, host: str, fence: int, batch: dict[str, Any], started: Started, asked: Asked, murder: Callable[[], None]
    ) -> "Exchange":
        """A request came in whole."""
        jobs = [job | {"argument": number_of(job["argument"]), "given": job["argument"]} for job in batch["jobs"]]
        ends = [self._next(job["argument"]) for job in jobs]
        exchange = Exchange(status=200)
        job_ids = [job["job_id"] for job in jobs]
        refuses = any(how == "refuse" for how, _ in ends) or not self.anew(host, job_ids)
        asked(host, job_ids, refuses)
        if refuses:
            for job in jobs:
                self._begun[job["argument"]] = self._begun.get(job["argument"], 0) + 1
            exchange = Exchange(status=503)
            exchange.close()
            return exchange
        for job in jobs:
            self._begun[job["argument"]] = self._begun.get(job["argument"], 0) + 1
            self._batches[job["job_id"]] = batch["batch_id"]
            started(job["job_id"], job["argument"])
            self.took(job["job_id"], job["given"])
        if self.accept is not None and self._source.random() < LATER:
            exchange.status = 202
            if self.slow_ends is not None:
                self._spawn(_end, exchange, self.slow_ends.uniform(0.0, SLOW_END_S))
            else:
                exchange.close()
            self.accept(host, fence, [(j["job_id"], j["argument"], *e) for j, e in zip(jobs, ends, strict=True)])
            return exchange
        todo = [(job["job_id"], self.said(job["argument"]), *end) for job, end in zip(jobs, ends, strict=True)]
        self._spawn(_work, exchange, todo, murder)
        return exchange

    def follows(self, number: int) -> list[dict[str, object]]:
        """What a success of that job says is to follow: every other one under an id that is chosen here."""
        if self._works[number].says_then:
            return []
        its = ((each, body_of(self._works, each)) for each in self._works[number].follows)
        return [body | ({"job_id": f"f{each}"} if each % 2 else {}) for each, body in its]

    def said(self, number: int) -> dict[str, object]:
        """What a success of that job says."""
        result = self.result(number)
        return {"jobs": self.follows(number)} | ({} if result is None else {"result": result})

    def result(self, number: int) -> Any:
        """What it returns; None: nothing."""
        return result_of(self._works, number)


class Exchange:
    """The way back of one request."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.headers = HEADERS | ({b"retry-after": f"{PAUSE_S:g}"} if status == 503 else {})
        self._send, self._receive = trio.open_memory_channel[bytes | None](1_000)

    def say(self, outcome: Mapping[str, object]) -> None:
        """One more outcome, if anybody listens yet."""
        self._tell(_encoder.encode(outcome))

    def die(self) -> None:
        """The worker is gone in the midst of it."""
        self._tell(None)
        self._send.close()

    def close(self) -> None:
        """All was said."""
        self._send.close()

    def _tell(self, chunk: bytes | None) -> None:
        if self._send.statistics().open_receive_channels:
            self._send.send_nowait(chunk)

    async def hear(self) -> AsyncGenerator[bytes, None]:
        """What comes back. Raises LostError when the worker died."""
        async with self._receive:
            async for chunk in self._receive:
                if chunk is None:
                    raise LostError("the worker is gone", "closed")
                yield chunk


async def _end(exchange: Exchange, after_s: float) -> None:
    """All was said by the status, but for the last byte."""
    await trio.sleep(after_s)
    exchange.close()


async def _work(exchange: Exchange, jobs: Sequence[tuple[str, Any, str, float]], murder: Callable[[], None]) -> None:
    """One after the other, as a worker with one hand does."""
    for job_id, said, how, after_s in jobs:
        await trio.sleep(after_s)
        match how:
            case "ok":
                exchange.say({"job_id": job_id, "type": "success"} | said)
            case "failed":
                exchange.say({"job_id": job_id, "status": 400, "message": "it cannot succeed"})
            case "error":
                exchange.say({"job_id": job_id, "status": 500, "message": "it broke"})
            case "die":
                exchange.die()
                return
            case "silent":
                return
            case "murder":
                murder()
    exchange.close()


class Wire:
    """A connection as the runner knows it, for one request."""

    def __init__(self, pool: "Pool") -> None:
        self.status = self.pieces = 0
        self.headers = HEADERS
        self._pool = pool
        self._heard: AsyncGenerator[bytes, None] | None = None

    async def ask(self, request: Request) -> None:
        """The request goes out, and the head of its answer comes back."""
        exchange = await self._pool.begin(request)
        self.status, self.headers, self._heard = exchange.status, exchange.headers, exchange.hear()

    async def read(self) -> bytes:
        """The body, piece by piece."""
        assert self._heard is not None
        return await anext(self._heard, b"")


class Pool:
    """Stands in for the pool of connections."""

    def __init__(
        self,
        workers: Workers,
        source: random.Random,
        started: Started,
        asked: Asked,
        dead: Callable[[], bool],
        murder: Callable[[], None],
        stopped: Callable[[str], None],
    ) -> None:
        self._stopped = stopped
        self._workers = workers
        self._source = source
        self._started, self._asked = started, asked
        self._dead = dead
        self._murder = murder

    async def take(self, origin: Origin, within_s: float) -> Wire:
        """See the real one."""
        await self._dawdle(SLOWLY)
        if origin.host in self._workers.down:
            raise UnreachedError("connection refused", "ECONNREFUSED")
        return Wire(self)

    def give(self, wire: Wire) -> None:
        """It is used once."""

    async def begin(self, request: Request) -> Exchange:
        """A request goes out."""
        if request.method == "DELETE":
            await self._dawdle(SLOWLY_TOLD)
        if self._dead():
            await trio.sleep_forever()
        if request.method == "DELETE":
            job_id = request.url.rpartition("=")[2]
            if self._workers.is_meant(job_id, dict(request.headers).get("JQD-Batch-Id")):
                self._stopped(job_id)
            exchange = Exchange(405)  # it takes no such calls
            exchange.close()
        else:
            host = request.url.split("/")[2]
            fence = int(dict(request.headers).get("JQD-Lease-Id", 0))
            batch = _decoder.decode(request.body)
            exchange = self._workers.begin(host, fence, batch, self._started, self._asked, self._murder)
        await trio.lowlevel.checkpoint()
        return exchange

    async def _dawdle(self, share: float) -> None:
        if self._source.random() < share:
            await trio.sleep(self._source.uniform(0.0, CONNECT_S))
