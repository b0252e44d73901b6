"""The worker over HTTP: a raw ASGI application, to be mounted under any path of any ASGI server that runs on trio.

    POST   one batch, MessagePack or JSON → 200 and a stream of outcomes, each sent soon after its job ended
           400 not understood · 408 body too slow · 413 too large · 415 other encoding · 503 + Retry-After come later
    GET    200 {status: "ok", …}, or 503 when new batches are refused
    DELETE ?job_id=…   204 the job is told to stop · 404 it is not in hand

Plain functions run in threads, async ones as tasks, each under the limit of `concurrency`. When the daemon hangs up,
async jobs of its batch are cancelled and plain ones that have not begun are skipped: nobody waits for their outcome.
A job told to stop keeps its place in the batch: its outcome says that it was cancelled, or how it ended all the same.
"""

from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import msgspec
import trio

from jqd.clock import Clock, SystemClock
from jqd.log import get_logger
from jqd.worker.app import App
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.pool import Pool
from jqd.worker.wire import BatchIn, Codec, codec_of

CONCURRENCY_DEFAULT = 16  # enough to hide the waiting of I/O, few enough for a small machine's memory
BODY_BYTES_MAX = 64 * 1024 * 1024  # a batch of 500 jobs with 128 KiB each
BODY_TIMEOUT_S = 30.0  # for a whole request body; a daemon sends it at once
LINGER_S = 0.005  # outcomes that end this close together share a chunk; a batch's last outcome never waits
SLICE_S = 0.001  # async jobs that never wait hold the loop for about so long, then others have a turn
WATCH_SHARE, WATCH_MIN_S, WATCH_MAX_S = 0.05, 0.02, 1.0  # how late a plain function's timeout may be noticed
RETRY_AFTER_S = 5  # how long a daemon is asked to stay away
NAMES_SHOWN_MAX = 50  # known jobs named in a message

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Limits of one worker."""

    concurrency: int = CONCURRENCY_DEFAULT
    """Plain functions at once, and as many async ones."""
    abandoned_max: int | None = None
    """Threads that may be stuck in functions past their timeout; None: as many as `concurrency`."""
    body_bytes_max: int = BODY_BYTES_MAX
    body_timeout_s: float = BODY_TIMEOUT_S
    linger_s: float = LINGER_S

    def __post_init__(self) -> None:
        if self.concurrency < 1 or (self.abandoned_max is not None and self.abandoned_max < 1):
            raise ValueError(f"a worker needs concurrency and abandoned_max of at least 1; got {self}")


class Refusal(Exception):
    """A request is answered with `status` instead of outcomes."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.title = status, title


class Service:
    """`app` as an ASGI application. One per process and trio loop; its threads start with the first batch."""

    def __init__(self, app: App, config: ServiceConfig | None = None, *, clock: Clock | None = None) -> None:
        self._app = app
        self._config = config or ServiceConfig()
        self._clock = clock or SystemClock()
        self._attempts = Attempts(self._clock)
        self._limiter = trio.CapacityLimiter(self._config.concurrency)
        self._log = get_logger("worker")
        self._pool: Pool | None = None
        self._in_hand: set[Batch] = set()
        self._idle = trio.Event()
        self._idle.set()
        self._refusing: str | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's life."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"a worker speaks http, not {scope['type']}")
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if scope["method"] == "POST":
                await self._batch(headers, receive, send)
            elif scope["method"] in ("GET", "HEAD"):
                await self._health(send)
            elif scope["method"] == "DELETE":
                await self._cancel(scope.get("query_string", b""), send)
            else:
                raise Refusal(405, "Method not allowed", "POST a batch of jobs, DELETE one, or GET the worker's health")
        except Refusal as refusal:
            await _refuse(refusal, headers, send)

    def refuse(self, reason: str) -> None:
        """Take no new batches from now on; what is in hand goes on."""
        self._refusing = reason

    @property
    def batches(self) -> int:
        """Batches in hand."""
        return len(self._in_hand)

    async def wait_idle(self) -> None:
        """Return when no batch is in hand."""
        await self._idle.wait()

    def close(self) -> None:
        """Let the threads leave. The server's lifespan does it; without one, the owner."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def refusing(self) -> str | None:
        """Why new batches are refused now; None when they are welcome."""
        if self._refusing is None and self._pool is not None and self._pool.saturated:
            return (
                f"{self._pool.abandoned} threads are stuck in jobs past their timeout; "
                "restart the worker, and make those jobs end by themselves or async"
            )
        return self._refusing

    # ------------------------------------------------------------ a batch

    async def _batch(self, headers: dict[bytes, str], receive: Receive, send: Send) -> None:
        codec = codec_of(headers.get(b"content-type", ""))
        if codec is None:
            raise Refusal(415, "Unsupported media type", "send application/msgpack or application/json")
        if reason := self.refusing():
            raise Refusal(503, "Not taking jobs", reason)
        taken = _parse(codec, await self._body(headers, receive))
        if taken is None:
            return  # the daemon hung up before the body was complete
        batch = Batch(codec, len(taken.jobs))
        self._in_hand.add(batch)
        if len(self._in_hand) == 1:
            self._idle = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                self._start(batch, taken, nursery)
                await self._answer(batch, send)
                nursery.cancel_scope.cancel()
        finally:
            batch.gone = True
            self._in_hand.discard(batch)
            if not self._in_hand:
                self._idle.set()

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes | None:
        """The whole body; None when the client hung up while sending it."""
        limit = self._config.body_bytes_max
        too_large = Refusal(
            413, "Batch too large", f"this worker takes batches of up to {limit} bytes; send fewer jobs"
        )
        told = headers.get(b"content-length", "")
        if told.isdecimal() and int(told) > limit:
            raise too_large
        chunks, size = [], 0
        with trio.move_on_after(self._config.body_timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise too_large
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        seconds = self._config.body_timeout_s
        raise Refusal(408, "Body too slow", f"the batch was not complete after {seconds:g} s; send it again")

    def _start(self, batch: Batch, taken: BatchIn, nursery: trio.Nursery) -> None:
        """Give every job of the batch to a thread or a task, or answer at once for those no function is known for."""
        plain, tasks = [], deque[Item]()
        functions = self._app.jobs
        for job in taken.jobs:
            function = functions.get(job.name)
            if function is None:
                known = ", ".join(list(functions)[:NAMES_SHOWN_MAX]) or "none"
                # Not final: while a new version is rolled out, some workers know a job and others do not yet.
                message = f"this worker knows no job {job.name!r}; it knows: {known}"
                outcome = self._attempts.not_run(batch.codec, job.job_id or job.id, message, error="unknown job name")
                batch.put_bare(outcome)
                continue
            item = Item(batch, job, function)
            batch.items.append(item)
            if function.is_async:
                tasks.append(item)
            else:
                plain.append(item)
        batch.plain = plain
        if plain:
            self._threads().submit(plain)
        for _ in range(min(len(tasks), self._config.concurrency)):
            nursery.start_soon(self._run_tasks, tasks)

    async def _run_tasks(self, items: deque[Item]) -> None:
        """Run items until none is left, one at a time."""
        limiter, yielded_s = self._limiter, self._clock.mono_s()
        while items:
            item = items.popleft()
            if item.ended:
                continue  # cancelled before it began
            try:
                limiter.acquire_nowait()  # a checkpoint for every job would cost more than a small job does
            except trio.WouldBlock:
                await limiter.acquire()
            try:
                if item.cancelled:
                    continue  # while it waited for its turn
                outcome = await self._attempts.run_async(item)
            finally:
                limiter.release()
            item.batch.put(item, outcome)
            if self._clock.mono_s() - yielded_s > SLICE_S:
                await trio.lowlevel.checkpoint()
                yielded_s = self._clock.mono_s()

    def _threads(self) -> Pool:
        if self._pool is None:
            concurrency = self._config.concurrency
            abandoned_max = self._config.abandoned_max or concurrency
            self._pool = Pool(self._attempts.run, threads=concurrency, abandoned_max=abandoned_max, clock=self._clock)
        return self._pool

    async def _answer(self, batch: Batch, send: Send) -> None:
        """Stream the outcomes as they come, watching over the plain functions meanwhile."""
        shortest_s = min((item.timeout_s for item in batch.plain), default=WATCH_MAX_S / WATCH_SHARE)
        watch_s = min(max(shortest_s * WATCH_SHARE, WATCH_MIN_S), WATCH_MAX_S)
        started = False
        while True:
            await batch.wait_some(watch_s, self._config.linger_s)
            self._give_up_late(batch)
            body, last = batch.take()
            if not started:
                # A batch that is done by now needs no chunked encoding.
                await _start_response(send, 200, batch.codec.content_type, len(body) if last else None)
                started = True
            if body or last:
                await send({"type": "http.response.body", "body": body, "more_body": not last})
            if last:
                return

    def _give_up_late(self, batch: Batch) -> None:
        """Report plain functions past their timeout, and hand back the rest when no thread is left to run them."""
        pool = self._pool
        if pool is None or not batch.plain:
            return
        for item in pool.overrun(batch):
            self._log.warning("worker.abandoned", job_id=item.job_id, name=item.job.name, stuck=pool.abandoned)
            batch.put(item, self._attempts.timed_out(item))
        if pool.live or not batch.left:
            return
        for item in batch.plain:
            if not item.ended:
                message = f"not begun: {self.refusing()}"
                told = self._attempts.not_run(
                    batch.codec, item.job_id, message, error="no thread left", retry_after=RETRY_AFTER_S
                )
                batch.put(item, told)

    # ------------------------------------------------------------ the rest

    async def _cancel(self, query: bytes, send: Send) -> None:
        """Tell jobs in hand to stop: what has not begun ends here, async ones are cancelled, plain ones may look."""
        wanted = set(parse_qs(query.decode("latin-1")).get("job_id", []))
        if not wanted:
            raise Refusal(400, "Which job", "name it: DELETE ?job_id=…")
        if self._pool is not None:
            self._pool.drain()  # what has ended by now has ended
        found = [i for batch in self._in_hand for i in batch.items if i.job_id in wanted and not i.ended]
        if not found:
            raise Refusal(404, "No such job", "it is not in this worker's hand; it ended, or never came")
        for item in found:
            item.cancelled = True
            if item.scope is not None:
                item.scope.cancel()
            elif item.function.is_async or not (self._pool and self._pool.runs(item)):
                item.batch.put(item, self._attempts.cancelled(item))
            self._log.info("worker.cancelled", job_id=item.job_id, name=item.job.name)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def _health(self, send: Send) -> None:
        reason = self.refusing()
        told = {
            "status": "refusing" if reason else "ok",
            "reason": reason,
            "jobs": list(self._app.jobs),
            "batches": len(self._in_hand),
            "concurrency": self._config.concurrency,
            "abandoned": self._pool.abandoned if self._pool else 0,
        }
        body = msgspec.json.encode(told)
        await _start_response(send, 503 if reason else 200, b"application/json", len(body))
        await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _parse(codec: Codec, body: bytes | None) -> BatchIn | None:
    if body is None:
        return None
    try:
        return codec.decode_batch(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = (
            f"the body is no batch of jobs ({error}); it is a map with `jobs`, a list of maps with `job_id` and `name`"
        )
        raise Refusal(400, "Batch not understood", detail) from None


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue  # a server may repeat the end of the body
    scope.cancel()


async def _refuse(refusal: Refusal, headers: dict[bytes, str], send: Send) -> None:
    """Problem details (RFC 9457) in the encoding the client speaks."""
    told = {"type": "about:blank", "title": refusal.title, "status": refusal.status, "detail": str(refusal)}
    accept = headers.get(b"accept", "")
    as_json = "json" in accept or ("msgpack" not in accept and "json" in headers.get(b"content-type", ""))
    body = msgspec.json.encode(told) if as_json else msgspec.msgpack.encode(told)
    content_type = b"application/problem+json" if as_json else b"application/msgpack"
    retry_after = RETRY_AFTER_S if refusal.status == 503 else None
    await _start_response(send, refusal.status, content_type, len(body), retry_after)
    await send({"type": "http.response.body", "body": body})


async def _start_response(
    send: Send, status: int, content_type: bytes, length: int | None, retry_after: int | None = None
) -> None:
    headers = [(b"content-type", content_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    await send({"type": "http.response.start", "status": status, "headers": headers})
