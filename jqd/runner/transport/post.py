"""Jobs carried by an HTTP request: send a body, hear the answer while it arrives, say how it ended.

What a request holds and what an answer means is the style's business. Redirects are never followed, compression is
never asked for, an answer's size is bounded, and a connection that said more than its answer is not used again.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urlsplit

import trio

from jqd.domain.errors import AnswerGarbled, JqdError
from jqd.domain.followers import FOLLOWERS_BYTES_MAX
from jqd.runner.config import RunnerConfig
from jqd.runner.protocols import Answer, Judgement, Reader, Request, Sending, WorkerProtocol, protocol_of
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.transport.http1 import LostError, Wire
from jqd.runner.transport.network import Origin, UnreachedError
from jqd.runner.transport.pool import OURS, Connections, CrowdedError, Pool
from jqd.runner.transport.transport import End, Ending, Listener, Told

FIELDS_BYTES = 131_072  # an outcome's fields beside its result and its followers: message, error, ids
EXCERPT_BYTES = 2_000  # of an error page, kept for the job's message: its headline, not its stylesheet
APART_BYTES = 16_384  # of arguments that are converted to JSON; more take over a millisecond, and go to a thread, where
# no more than a piece of them is built at once (`domain/json_ext.py`): what C does in one go holds up all threads
PIECES_MAX = 8_192  # of a body, in which it arrives; each costs time, be it a byte
PIECES_PER_JOB = 64  # so many more for each job that was sent
PIECE_BYTES = 256  # and one more for so many bytes
DRAIN_BYTES_MAX = 65_536  # of a body nobody reads, taken in so that the connection can be used again

T = TypeVar("T")
_reading = trio.CapacityLimiter(1)  # more threads of Python would only take turns


class Post:
    """A carrier: one request for each batch, one more for a cancel."""

    def __init__(self, pool: Pool, connections: Connections, config: RunnerConfig) -> None:
        self._pool, self._connections, self._config = pool, connections, config
        self._writing = trio.CapacityLimiter(1)  # more threads of Python would only take turns

    async def carry(self, sending: Sending, listener: Listener) -> Ending:
        worker, style = sending.worker, protocol_of(sending.worker)
        request = (await self._written(style, sending)).dressed(worker, sending.sent_at_ms)
        with self._connections.one(worker.endpoint):
            try:
                wire = await self._pool.take(_origin(request.url, worker.standing_here), self._config.connect_timeout_s)
            except (UnreachedError, CrowdedError) as error:
                return _unsent(error)
            try:
                # Asked as late as can be: it may have taken seconds to connect.
                if not listener.sending():
                    return Ending(End.REFUSED)
                await wire.ask(request)
                self._connections.heard(worker.endpoint)
                return await _hear(wire, style, sending, listener, self._config)
            except AnswerGarbled as error:
                return Ending(End.GARBLED, message=str(error))
            except LostError as error:
                return Ending(End.LOST, message=describe(error), broke=kind_of(error))
            finally:
                self._pool.give(wire)

    async def _written(self, style: WorkerProtocol, sending: Sending) -> Request:
        """Large arguments are made JSON beside the loop, one request after the other: it serves everybody meanwhile."""
        size = sum(len(each.job.argument) for each in sending.held)
        if size <= APART_BYTES or style.copies(sending.worker):
            return style.request(sending)
        return await trio.to_thread.run_sync(style.request, sending, abandon_on_cancel=True, limiter=self._writing)

    async def cancel(self, sending: Sending, job_id: str, *, at_ms: int, within_s: float) -> Told | None:
        request = protocol_of(sending.worker).cancel(sending, job_id)
        if request is None:
            return None
        status = 0
        with trio.move_on_after(within_s):
            try:
                wire = await self._pool.take(_origin(request.url, sending.worker.standing_here), within_s)
            except (UnreachedError, CrowdedError) as error:
                return Told(0, kind_of(error))
            try:
                await wire.ask(request.dressed(sending.worker, at_ms))
                status = wire.status
                await hear_excerpt(wire, within_s)  # read to its end, so that the connection can be kept
                return Told(status, f"the worker answered {status}")
            except LostError as error:
                return Told(status, kind_of(error))
            finally:
                self._pool.give(wire)
        return Told(status, f"no answer within {within_s:g} s")


def _origin(url: str, standing: AddressPolicy) -> Origin:
    scheme, host, port = _address(*url.split("/", 3)[:3:2])
    return Origin(scheme, host, port, standing)


@lru_cache(maxsize=1_000)  # more workers than are spoken to at once; for each request a split would cost as much as TCP
def _address(scheme: str, authority: str) -> tuple[str, str, int]:
    parts = urlsplit(f"{scheme}//{authority}")
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _unsent(error: JqdError) -> Ending:
    """No connection, and so nothing was sent: through us, or through the worker and what leads there."""
    crowded = isinstance(error, CrowdedError) or any(is_ours(cause) for cause in _causes(error))
    shared = not isinstance(error, UnreachedError) or error.is_shared
    end = End.CROWDED if crowded else End.UNREACHABLE
    return Ending(end, message=describe(error), broke=kind_of(error), is_shared=shared)


def describe(error: BaseException) -> str:
    """What broke, with the name of the errno where one is known: `ECONNREFUSED: …`."""
    text = str(error) or type(error).__name__
    for cause in _causes(error):
        name = errno.errorcode.get(cause.errno or 0) if isinstance(cause, OSError) else None
        if isinstance(cause, OSError) and name:
            return f"{name}: {cause.strerror or text}"
    return text


def kind_of(error: BaseException) -> str:
    """The name of the errno where one is known, else what kind of error: nothing that came over the wire."""
    name = describe(error).partition(":")[0]
    if name in errno.errorcode.values():
        return name
    return error.kind if isinstance(error, LostError) else type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Whether it says that this process, or its machine, has no more sockets to give."""
    return isinstance(error, OSError) and error.errno in OURS


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and all that led to it; bounded, for chains may be circular."""
    stack, seen = [error], 0
    while stack and seen < 64:
        seen += 1
        each = stack.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            stack.extend(each.exceptions)
        stack.extend(arg for arg in each.args if isinstance(arg, BaseException))
        stack.extend(linked for linked in (each.__context__, each.__cause__) if linked is not None)


async def _hear(
    wire: Wire, style: WorkerProtocol, sending: Sending, listener: Listener, config: RunnerConfig
) -> Ending:
    judgement = style.judge(wire.status)
    listener.answered(judgement)
    if judgement is Judgement.READ:
        # What is compressed is not of the type that the head names.
        content_type = wire.headers.get(b"content-type", "") if _coding(wire) == "identity" else ""
        value_bytes_max = config.result_bytes_max + FOLLOWERS_BYTES_MAX + FIELDS_BYTES
        reader = style.reader(sending, content_type, value_bytes_max, wire.status)
        return await _hear_answers(wire, reader, listener, config, len(sending.held))
    excerpt = await hear_excerpt(wire, config.linger_s)
    message = f"the worker answered {wire.status}"
    if 300 <= wire.status < 400:
        message += "; redirects are not followed, register the URL it leads to"
    return Ending(
        End.STATUS,
        judgement,
        wire.status,
        f"{message}: {excerpt}" if excerpt else message,
        wire.headers.get(b"retry-after"),
    )


async def _hear_answers(wire: Wire, reader: Reader, listener: Listener, config: RunnerConfig, jobs: int) -> Ending:
    coding, size = _coding(wire), 0
    while chunk := await wire.read():
        if coding != "identity" and not reader.is_decided:
            raise AnswerGarbled(f"the answer is encoded as {coding[:50]!r}, which was not asked for")
        size += len(chunk)
        if size > config.answer_bytes_max:
            raise AnswerGarbled(f"the answer has more than the {config.answer_bytes_max} bytes that are read")
        if wire.pieces > PIECES_MAX + PIECES_PER_JOB * jobs + size // PIECE_BYTES:
            raise AnswerGarbled(f"the answer comes in crumbs: {wire.pieces} of {size} bytes; write larger ones")
        listener.said(await _read(reader, chunk))
    last = reader.end() if not reader.is_costly(b"") else await _apart(reader.end)
    # Without a length the end of the connection is the end of the body, also when the worker died there.
    framed = wire.status == 204 or b"content-length" in wire.headers or b"transfer-encoding" in wire.headers
    if not framed and not reader.is_decided:
        return Ending(End.LOST, message="the connection closed, and the answer had no length to tell that it was whole")
    listener.said(last)
    return Ending(End.COMPLETE, status=wire.status)


async def _read(reader: Reader, chunk: bytes) -> Iterable[Answer]:
    """What came with it. Much JSON is read beside the loop, and what was read before an error stands all the same."""
    if not reader.is_costly(chunk):
        return reader.feed(chunk)
    answers: list[Answer] = []

    def read() -> None:
        for answer in reader.feed(chunk):
            answers.append(answer)  # noqa: PERF402 - what was read before an error stays

    try:
        await _apart(read)
    except AnswerGarbled as error:
        return _then(answers, error)
    return answers


async def _apart(read: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=_reading)


def _then(answers: Iterable[Answer], error: AnswerGarbled) -> Iterator[Answer]:
    yield from answers
    raise error


def _coding(wire: Wire) -> str:
    return wire.headers.get(b"content-encoding", "identity").strip().lower()


async def hear_excerpt(wire: Wire, within_s: float) -> str:
    """The beginning of a body that nobody parses, as text: as much of it as comes `within_s`."""
    begin, size = b"", 0
    try:
        with trio.move_on_after(within_s):
            while size <= DRAIN_BYTES_MAX and (chunk := await wire.read()):
                size += len(chunk)
                begin = (begin + chunk)[:EXCERPT_BYTES]
    except LostError:
        # The status is known and decides; the rest of the page would not change the verdict.
        return begin.decode("utf-8", "replace")
    return begin.decode("utf-8", "replace").strip()
