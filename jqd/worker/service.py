"""The worker over HTTP: an ASGI application, to be mounted at any path in any ASGI server that runs on trio.

    POST   one batch, MessagePack or JSON → 200 and a stream of outcomes, each sent soon after its job ended
           400 not understood · 408 body too slow · 413 too large · 415 other encoding
           503 + Retry-After: no room, stopping, too many threads are stuck, not signed, or sent before
    GET    200 {status: "ok", …}, or 503 when new batches are refused; /openapi.json describes the protocol
    DELETE ?job_id=…   204 the job is being stopped · 404 it is not in flight · 503 not signed, or sent before

Plain functions run in threads, async ones as tasks, each kind up to `concurrency`. Jobs that cannot begin at once wait,
within limits: beyond `queue_jobs` a batch, or the part of it without room, is refused. A job that has waited for
PATIENCE_S or half of its timeout is handed back. Neither costs a job an attempt. When the daemon disconnects, async
jobs of its batch are cancelled and plain ones that have not begun are skipped. A cancelled job still has an outcome in
its batch: that it was cancelled, or how it ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
import trio

from jqd.domain import media
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.log import get_logger
from jqd.http import Foreign, Guard
from jqd.worker import openapi
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.executors import InProcess, jobs_text
from jqd.worker.job import Declared
from jqd.worker.refusal import (
    RETRY_AFTER_S,
    Message,
    Receive,
    Refusal,
    Send,
    parse_batch,
    read_body,
    refuse,
    start_response,
)
from jqd.worker.signed import NOT_SIGNED, SENT_BEFORE, SignedRequests, cancel_id
from jqd.worker.wire import BatchIn, Health, codec_of

if TYPE_CHECKING:
    from jqd.worker.process_pool import ProcessPool

CONCURRENCY_DEFAULT = 16  # enough to hide the waiting of I/O, few enough for a small machine's memory
BODY_BYTES_MAX = 64 * 1024 * 1024  # a batch of 500 jobs with 128 KiB each
BODY_TIMEOUT_S = 30.0  # for a whole request body; a daemon sends it at once
LINGER_S = 0.005  # outcomes that end this close together share a chunk; a batch's last outcome never waits
WATCH_SHARE, WATCH_MIN_S, WATCH_MAX_S = 0.05, 0.02, 1.0  # how late, in timeouts, a timed-out function may be noticed
PATIENCE_S = 2.0  # a job waits here at most so long: another worker may be quicker
SUSPECT_PATIENCE_S = 60.0  # a job that must run alone waits longer: another worker would run it beside others
PATIENCE_SHARE = 0.5  # of its timeout a job waits at most: the daemon counts from when it sent the job
QUEUE_JOBS_DEFAULT = 500  # as large as the batches that `serve` asks for: daemons send no more than one ahead
RUNS_ON = "a thread cannot be stopped; it runs until this process has ended, and its job runs again elsewhere"
FULL_RETRY_AFTER_S = 1  # when there is no room, as jobs end all the time
LEASE_ID = b"jqd-lease-id"  # request header
NAMES_SHOWN_MAX = 50  # known jobs named in a message


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Limits of a `Service`."""

    concurrency: int = CONCURRENCY_DEFAULT
    """Limit of plain functions at once, and of async ones."""
    queue_jobs: int = QUEUE_JOBS_DEFAULT
    """Jobs of all batches that may wait for a thread or task."""
    body_bytes_max: int = BODY_BYTES_MAX
    body_timeout_s: float = BODY_TIMEOUT_S
    linger_s: float = LINGER_S

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.queue_jobs < 0:
            raise ValueError(f"a worker needs concurrency of at least 1, and queue_jobs of at least 0; got {self}")


class Service:
    """The ASGI application of a worker, one for each process and trio loop. Its threads start with the first batch."""

    def __init__(
        self,
        jobs: Mapping[str, Declared],
        config: ServiceConfig | None = None,
        *,
        clock: Clock | None = None,
        guard: Guard = Guard(loopback=False),  # noqa: B008 - it never changes
        executor: "InProcess | ProcessPool | None" = None,
        on_output: Callable[[Item], None] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """`jobs`: name → job, as `App.jobs` returns them. `executor`: what runs them; None: this process. `on_output`:
        called with a job's item when the job has new output or progress.

        `guard`: by default any `Host`, as only the server in front knows its names. `secrets`: only requests signed
        with one of them run or stop jobs; none: all requests do. Raises ValueError for a malformed secret.
        """
        self._jobs = jobs
        self._signed = SignedRequests(secrets)
        self._config = config or ServiceConfig()
        self._clock = clock or SystemClock()
        self._guard = guard
        self.attempts = Attempts(self._clock, on_output)
        """Runs the job functions, unless an executor with processes does."""
        self._executor = executor or InProcess(self.attempts, concurrency=self._config.concurrency, clock=self._clock)
        self._log = get_logger("worker")
        self._in_flight: set[Batch] = set()
        self._idle = trio.Event()
        self._idle.set()
        self._refusing: str | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"a worker speaks http, not {scope['type']}")
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check(scope["path"], headers)
            if scope["method"] == "POST":
                await self._batch(headers, receive, send)
            elif scope["method"] in ("GET", "HEAD"):
                await (_show(send) if scope["path"].endswith(openapi.PATH) else self._health(send))
            elif scope["method"] == "DELETE":
                await self._cancel(scope.get("query_string", b""), headers, send)
            else:
                raise Refusal(405, "Method not allowed", "POST a batch of jobs, DELETE one, or GET the worker's health")
        except Refusal as refusal:
            await refuse(refusal, headers, send)

    def _check(self, path: str, headers: dict[bytes, str]) -> None:
        """Refuse requests that may come from a web page in a browser on this machine. Raises Refusal."""
        try:
            self._guard.check(path, _by_name(headers))
        except Foreign as foreign:
            raise Refusal(foreign.status, "Refused", str(foreign)) from foreign

    def refuse(self, reason: str) -> None:
        self._refusing = reason

    @property
    def batches(self) -> int:
        return len(self._in_flight)

    @property
    def jobs_in_flight(self) -> int:
        """Return how many jobs have no outcome yet, of all batches in flight."""
        return sum(batch.left for batch in self._in_flight)

    @property
    def room(self) -> int:
        """Return for how many more jobs there is room, running or waiting."""
        return max(0, self.free + self._config.queue_jobs)

    @property
    def free(self) -> int:
        """Return how many more jobs may begin now. A negative number: so many wait."""
        return self._config.concurrency - self.jobs_in_flight - self._executor.orphans

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def hand_back(self, why: str) -> int:
        """Hand back all jobs in flight without counting an attempt, and stop those that can be stopped.

        Returns how many cannot be stopped: they may complete their work although their jobs are run again.
        """
        self._executor.drain()
        running_on = 0
        for item in [item for batch in self._in_flight for item in batch.items if not item.ended]:
            begun = not item.begin()
            codec = item.batch.codec
            item.batch.put(item, self.attempts.refused(codec, item.job_id, why, retry_after=RETRY_AFTER_S, begun=begun))
            if begun and not item.halt():
                running_on += 1
                self._log.warning("worker.runs_on", job_id=item.job_id, name=item.job.name, next=RUNS_ON)
        return running_on

    def stop(self, item: Item) -> None:
        """Stop a job that was cancelled. If it has begun, it ends some time later, or succeeds nevertheless."""
        item.cancelled = True
        if item.begin():  # it has not begun, and never will
            item.batch.put(item, self.attempts.cancelled(item))
        else:
            item.halt()
        self._log.info("worker.cancelled", job_id=item.job_id, name=item.job.name)

    def close(self) -> None:
        """Stop the threads. Called at the end of an ASGI lifespan; on a server without lifespan, whoever made the
        service must call it."""
        self._executor.close()

    def refusing(self) -> str | None:
        """Return why new batches are refused now; None: they are not."""
        return self._refusing or (self._executor.trouble() if self._executor.is_helpless else None)

    def trouble(self) -> str | None:
        return self._executor.trouble()

    def at_work(self) -> str:
        """Return a text that lists the jobs that have begun: id, name, and how long ago each arrived."""
        now_s = self._clock.mono_s()
        items = [
            item for batch in self._in_flight for item in batch.items if not item.ended and item not in batch.waiting
        ]
        return jobs_text([(item, now_s - item.batch.arrived_s) for item in items]) or "no job that has begun"

    def tasks(self) -> str:
        """Return a text that lists the async jobs that have begun: id and name. Any thread may call this."""
        items = [item for batch in list(self._in_flight) for item in list(batch.items)]
        tasks = [item for item in items if item.function.loop is not None and not item.ended]
        return ", ".join(f"{item.job_id} ({item.job.name})" for item in tasks if item not in item.batch.waiting)

    def stuck(self) -> list[tuple[Item, float]]:
        return self._executor.stuck()

    # ------------------------------------------------------------ a batch

    async def _batch(self, headers: dict[bytes, str], receive: Receive, send: Send) -> None:
        kind = headers.get(b"content-type")
        codec = None if kind is None else codec_of(kind)
        if codec is None:
            raise Refusal(415, "Unsupported media type", f"send {media.BOTH}")
        if reason := self.refusing():
            raise Refusal(503, "Not taking jobs", reason)
        self._expect_room()  # before the body is read, to save sending it
        config = self._config
        body = await read_body(headers, receive, bytes_max=config.body_bytes_max, timeout_s=config.body_timeout_s)
        if body is None:
            return  # the daemon hung up before it was complete
        self._expect_signed(headers, body)
        self._signed.take(_by_name(headers), self._clock.mono_s())
        taken = parse_batch(codec, body)
        if taken.jobs:
            self._expect_room()  # again: other batches may have come meanwhile
        room = self.room
        batch = Batch(codec, len(taken.jobs), self._clock.mono_s(), taken.batch_id, headers.get(LEASE_ID, ""))
        await self.run(batch, taken, room, receive, send)

    async def run(self, batch: Batch, taken: BatchIn, room: int, receive: Receive, send: Send) -> None:
        """Run a batch, at most `room` of its jobs, until all have ended or `receive` reports a disconnect."""
        self._in_flight.add(batch)
        if len(self._in_flight) == 1:
            self._idle = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                self._start(batch, taken, room, nursery)
                await self._answer(batch, send)
                nursery.cancel_scope.cancel()
        finally:
            batch.gone = True
            self._executor.forget(batch)
            self._in_flight.discard(batch)
            if not self._in_flight:
                self._idle.set()

    def _expect_signed(self, headers: dict[bytes, str], body: bytes) -> None:
        """Refuse an unsigned request, with a 503. A 4xx would fail the jobs of a daemon with an old secret or a wrong
        clock; after a 503 they wait until that is fixed. Raises Refusal."""
        why = self._signed.why_not(_by_name(headers), body, self._clock.wall_ms() / 1000)
        if why == SENT_BEFORE:
            self._log.warning("worker.sent_before", message=headers[b"webhook-id"], why=why)
        if why is not None:
            raise Refusal(503, "Not signed", why)

    def _expect_room(self) -> None:
        if not self.room:
            config = self._config
            detail = f"{config.concurrency} jobs may run here and {config.queue_jobs} wait, and so many do"
            raise Refusal(503, "Full", detail, retry_after_s=FULL_RETRY_AFTER_S)

    def _start(self, batch: Batch, taken: BatchIn, room: int, nursery: trio.Nursery) -> None:
        """Start the jobs of a batch. A job for which there is no function or no room is refused or fails at once."""
        for job in taken.jobs:
            function = self._jobs.get(job.name)
            if function is None:
                known = ", ".join(list(self._jobs)[:NAMES_SHOWN_MAX]) or "none"
                # The job may be retried: during a roll-out only some workers know it.
                message = f"this worker knows no job {job.name!r}; it knows: {known}"
                job_id = job.job_id or job.id
                batch.put_bare(job_id, self.attempts.unknown(batch.codec, job_id, message))
                continue
            if len(batch.items) == room:
                message = f"of this batch the worker had room for {room} jobs"
                job_id = job.job_id or job.id
                batch.put_bare(job_id, self.attempts.refused(batch.codec, job_id, message))
                continue
            item = Item(batch, job, function)
            batch.items.append(item)
            batch.waiting[item] = None
        self._executor.start(batch.items, nursery)

    async def _answer(self, batch: Batch, send: Send) -> None:
        """Send outcomes as they come. Meanwhile, report timed-out jobs, and hand back jobs that wait too long."""
        shortest_s = min((item.timeout_s for item in batch.items), default=WATCH_MAX_S / WATCH_SHARE)
        watch_s = min(max(shortest_s * WATCH_SHARE, WATCH_MIN_S), WATCH_MAX_S)
        patience_s = min(PATIENCE_S, shortest_s * PATIENCE_SHARE)
        started = False
        while True:
            await batch.wait_some(watch_s, self._config.linger_s)
            self._executor.watch(batch)
            self._hand_back(batch, patience_s)
            body, last = batch.take()
            if not started:
                # A batch that has ended by now needs no chunked encoding.
                await start_response(send, 200, batch.codec.content_type, len(body) if last else None)
                started = True
            if body or last:
                await send({"type": "http.response.body", "body": body, "more_body": not last})
            if last:
                return

    def _hand_back(self, batch: Batch, patience_s: float) -> None:
        """Hand back jobs that have waited too long, or that no thread can run, as other workers may be free.
        `patience_s`: the shortest wait that may be too long for a job of the batch."""
        waited_s = self._clock.mono_s() - batch.arrived_s
        if not batch.waiting or (waited_s < patience_s and self._executor.trouble() is None):
            return
        for item in list(batch.waiting):
            is_suspect, stuck = self._executor.is_suspect(item), self._executor.stranded(item)
            most_s = SUSPECT_PATIENCE_S if is_suspect else PATIENCE_S
            too_long = waited_s >= min(most_s, item.timeout_s * PATIENCE_SHARE)
            if (too_long or stuck) and item.begin():
                why = self.refusing() or f"it waited for {waited_s:.1f} s behind other jobs"
                # No retry_after for a suspect: other jobs need not stay away because of it.
                after_s = RETRY_AFTER_S if stuck else None if is_suspect else FULL_RETRY_AFTER_S
                batch.put(item, self.attempts.refused(batch.codec, item.job_id, why, retry_after=after_s))

    # ------------------------------------------------------------ cancel, health, lifespan

    async def _cancel(self, query: bytes, headers: dict[bytes, str], send: Send) -> None:
        """Handle a request to cancel jobs. A job that has not begun ends now, an async one is cancelled, and a plain
        function may notice by `current().cancelled`."""
        batch_id = headers.get(b"jqd-batch-id")
        wanted = set(parse_qs(query.decode("latin-1")).get("job_id", []))
        if not wanted:
            raise Refusal(400, "Which job", "name it: DELETE ?job_id=…")
        # The signature covers the message's id but not the query: so that id must name the job.
        if self._signed.keys and wanted != {cancel_id(headers.get(b"webhook-id", ""))}:
            raise Refusal(503, "Not signed", NOT_SIGNED)
        self._expect_signed(headers, b"")
        self._executor.drain()  # jobs that have ended by now are not cancelled
        batches = [batch for batch in self._in_flight if batch_id is None or batch.batch_id in ("", batch_id)]
        found = [i for batch in batches for i in batch.items if i.job_id in wanted and not i.ended]
        self._signed.take(_by_name(headers), self._clock.mono_s())  # even if not found: the job may come again
        if not found:
            raise Refusal(404, "No such job", "it is not in flight here; it ended, or never came")
        for item in found:
            self.stop(item)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def _health(self, send: Send) -> None:
        reason = self.refusing()
        health = Health(
            status="refusing" if reason else "ok",
            reason=reason,
            jobs=list(self._jobs),
            batches=len(self._in_flight),
            concurrency=self._config.concurrency,
            room=self.room,
            stuck=len(self._executor.stuck()),
        )
        body = msgspec.json.encode(health)
        await start_response(send, 503 if reason else 200, media.JSON, len(body))
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


async def _show(send: Send) -> None:
    """Answer with the worker's OpenAPI document."""
    body = openapi.document()
    await start_response(send, 200, media.JSON, len(body))
    await send({"type": "http.response.body", "body": body})


def _by_name(headers: dict[bytes, str]) -> dict[str, str]:
    return {name.decode("latin-1"): value for name, value in headers.items()}


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue  # some servers repeat the end of the body
    scope.cancel()
