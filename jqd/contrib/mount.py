"""Runs an app's jobs at one URL of a program that already serves HTTP, with any framework.

    daemon ──POST a job──▶ the program's server ──▶ Mount.answer ──▶ the function, in the server's own thread or loop
                          ◀── its outcome ─────────────────────────┘

A request has one job, so the program's server limits how many jobs run at once. It should have room for `max_jobs` such
requests beside those of its visitors. Requests with jobs are signed, as visitors reach the same port. The daemons know
the URL by a handler for each job, which remains until it is deleted, even if the program or a daemon restarts.
"""

import hashlib
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import sniffio
import structlog

from jqd.client import Client, NotFound
from jqd.domain import log
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.signature import key_of
from jqd.worker.aio import is_cancelled
from jqd.worker.app import App
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.context import at_work
from jqd.worker.refusal import Body, Refusal, parse_batch
from jqd.worker.signed import is_ours
from jqd.worker.wire import Codec, codec_of

NOT_SIGNED = "no daemon signed this in the last five minutes with the secret that its handler was set with"
MAX_JOBS_DEFAULT = 4  # at once: few enough for a server with some threads to answer its visitors, too
# Of a request. A daemon sends at most about 4 MiB, or one job, of 1 MiB unless `api.job_bytes_max` allows more.
BODY_BYTES_MAX = 8 << 20
Secret = str | Sequence[str] | None


class Answer(NamedTuple):
    """The response that the program's server should send."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str]
    """Headers besides the content type."""


class Mount:
    """Answers requests that carry jobs. Any thread or task may call it."""

    def __init__(
        self, app: App, *, secret: Secret, body_bytes_max: int = BODY_BYTES_MAX, clock: Clock | None = None
    ) -> None:
        """`secret`: one or several secrets with which daemons sign requests, as given to `register`; None: accept
        unsigned requests, for a port that only daemons reach. Raises ValueError for a malformed secret.
        `body_bytes_max`: larger requests are refused with 413, unread."""
        self._app = app
        self._body_bytes_max = body_bytes_max
        self._keys = None if secret is None else [key_of(one) for one in secrets_of(secret)]
        self._clock = clock or SystemClock()
        self._attempts = Attempts(self._clock)
        if not structlog.is_configured():
            log.configure()  # on stderr, as `jqd worker` does

    def _body(self, headers: Mapping[str, str]) -> Body:
        """Return a `Body` that collects the body of a request. Raises Refusal."""
        most = self._body_bytes_max
        too_large = f"this program takes requests of up to {most} bytes; send fewer jobs, or raise body_bytes_max here"
        return Body(headers.get("content-length", ""), most, too_large)

    def answer(self, headers: Mapping[str, str], chunks: Iterable[bytes]) -> Answer:
        """Run the jobs of a request in this thread, async functions in a new loop, and return the answer. `headers`:
        names in lower case. `chunks`: the request's body in pieces."""
        try:
            body = self._body(headers)
            for chunk in chunks:
                body.add(chunk)
            codec, items, ended = self._taken(headers, body.whole())
        except Refusal as refusal:
            return _refused(refusal)
        for item in items:
            loop = item.function.loop
            if loop is None:
                ended.append(self._attempts.run(item))
            else:
                ended.append(anyio.run(self._run_async, item, backend=loop))
        return _answered(codec, ended)

    async def aanswer(self, headers: Mapping[str, str], chunks: AsyncIterable[bytes]) -> Answer:
        """Run the jobs of a request and return the answer, for an async server: async functions in this task, plain
        ones in a thread. `headers`: names in lower case. `chunks`: the request's body in pieces."""
        try:
            body = self._body(headers)
            async for chunk in chunks:
                body.add(chunk)
            codec, items, ended = self._taken(headers, body.whole())
            here = sniffio.current_async_library()
            for item in items:
                if item.function.loop not in (None, here):
                    detail = f"job {item.job.name!r} is declared for {item.function.loop}, and this server runs {here}"
                    raise Refusal(500, "Another loop", f"{detail}: declare it with loop={here!r}")
        except Refusal as refusal:
            return _refused(refusal)
        for item in items:
            if item.function.loop is None:
                ended.append(await anyio.to_thread.run_sync(self._attempts.run, item))
            else:
                ended.append(await self._run_async(item))
        return _answered(codec, ended)

    def _taken(self, headers: Mapping[str, str], body: bytes) -> tuple[Codec, list[Item], list[bytes]]:
        """Check and decode a request. Returns its encoding, the jobs to run, and the outcomes of jobs for which the app
        has no function. Raises Refusal."""
        if self._keys is not None and not is_ours(self._keys, headers, body, self._clock.wall_ms() / 1000):
            # Not 403, which fails jobs: after a 503 they wait, untried, until the secret or a clock is corrected.
            raise Refusal(503, "Not signed", NOT_SIGNED)
        codec = codec_of(headers.get("content-type", "-"))
        if codec is None:
            raise Refusal(415, "Unsupported media type", "send MessagePack or JSON")
        taken = parse_batch(codec, body)
        batch = Batch(codec, len(taken.jobs), self._clock.mono_s(), taken.batch_id)
        items, ended = [], []
        for job in taken.jobs:
            function = self._app.jobs.get(job.name)
            if function is None:
                message = f"this program knows no job {job.name!r}; it knows: {', '.join(self._app.jobs) or 'none'}"
                ended.append(self._attempts.unknown(codec, job.job_id or job.id, message))
            else:
                items.append(Item(batch, job, function))
        return codec, items, ended

    async def _run_async(self, item: Item) -> bytes:
        """Run an async job in this task, under asyncio or trio, and return its outcome."""
        job: Any = item.function
        at_work.set(self._attempts.context(item))
        try:
            with anyio.move_on_after(item.timeout_s) as scope:
                args, kwargs = self._attempts.values(item)
                body = self._attempts.encoded(item, await job.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a job must not end the program it is mounted in
            _let_through(error)
            return self._attempts.raised(item, error)
        else:
            return self._attempts.timed_out(item) if scope.cancelled_caught else self._attempts.returned(item, body)
        finally:
            at_work.set(None)
            if item.span is not None:
                item.span.end()


def _let_through(error: BaseException) -> None:
    """Raise the error again if it means that the request was cancelled, because nobody waits for the outcome then."""
    cancelled = anyio.get_cancelled_exc_class()
    ended = error.split(cancelled)[0] if isinstance(error, BaseExceptionGroup) else error
    if ended is None or not isinstance(ended, cancelled | BaseExceptionGroup):
        return
    if sniffio.current_async_library() == "trio" or is_cancelled():  # under asyncio a job itself may raise it
        raise ended from None


def register(
    app: App, url: str, *, secret: Secret, max_jobs: int = MAX_JOBS_DEFAULT, client: Client | None = None
) -> list[str]:
    """Make the daemons send the jobs of `app` to `url`, by setting a handler for each job. `max_jobs`: how many jobs of
    one handler may run at once.

    Returns the names of the jobs whose handler is new or changed. Other handlers are not set again, so a program may
    call this at each start. Raises ConfigError for an app without jobs, and the errors of `Client`.
    """
    if not app.jobs:
        raise ConfigError(f"there is nothing to run at {url}: the app has no jobs; was their module imported?")
    outcomes, signs = [], {} if secret is None else {"secrets": secrets_of(secret)}
    asked = client or app.client
    for job in app.jobs.values():
        options = {"style": "native", "batch": 1, "max_jobs": max_jobs, **job.declared, **signs}
        # Daemons do not show secrets. This note tells whether the handler is exactly this one.
        eid = hashlib.sha256(msgspec.json.encode([url, options], order="sorted")).hexdigest()[:32]
        try:
            known = asked.handler(job.name).get("eid")
        except NotFound:
            known = None
        if known != eid:
            asked.set_handler(job.name, url, options, eid=eid)
            outcomes.append(job.name)
    return outcomes


def secrets_of(secret: str | Sequence[str]) -> list[str]:
    """Return one or several secrets as a list."""
    return [secret] if isinstance(secret, str) else list(secret)


def _answered(codec: Codec, ended: list[bytes]) -> Answer:
    return Answer(200, codec.content_type, codec.first + codec.between.join(ended) + codec.last, {})


def _refused(refusal: Refusal) -> Answer:
    fields = {"type": "about:blank", "title": refusal.title, "status": refusal.status, "detail": str(refusal)}
    headers = {"retry-after": str(refusal.retry_after_s)} if refusal.status == 503 else {}
    return Answer(refusal.status, "application/problem+json", msgspec.json.encode(fields), headers)
