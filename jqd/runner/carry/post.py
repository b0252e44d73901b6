"""Jobs carried by an HTTP POST: send a body, hear the answer while it arrives, say how it ended.

What a request holds and what an answer means is the style's business. Redirects are never followed, compression is
never asked for, an answer's size is bounded, and a connection that said more than its answer is not used again.
"""

import errno
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import httpcore2
import trio

from jqd.runner.carry.carrier import End, Ending, Listener, Told
from jqd.runner.carry.network import awaiting
from jqd.runner.carry.pool import OURS, Connections
from jqd.runner.config import RunnerConfig
from jqd.runner.reach import on_behalf_of
from jqd.runner.styles import Judgement, Reader, Sending, Style, style_of
from jqd.words.errors import AnswerGarbled

FIELDS_BYTES = 131_072  # an outcome's fields beside its result: message, error, ids
EXCERPT_BYTES = 2_000  # of an error page, kept for the job's message: its headline, not its stylesheet
PIECES_MAX = 8_192  # of a body, in which it arrives; each costs time, be it a byte
PIECES_PER_JOB = 64  # so many more for each job that was sent
PIECE_BYTES = 256  # and one more for so many bytes
TURN_PIECES = 32  # after so many others have a turn: they may have arrived together
SEND_S = 30.0  # for a request to be taken in, and longer by its size:
SEND_BYTES_PER_S = 65_536
DRAIN_BYTES_MAX = 65_536  # of a body nobody reads, taken in so that the connection can be used again


class _NotLetOutError(Exception):
    """The listener said no."""


class _Progress:
    """What has happened to a request so far, from the client's trace events."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.sent = False

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        if event == "http11.send_request_headers.started":
            # Asked as late as can be: it may have taken seconds to connect.
            if not self._listener.sending():
                raise _NotLetOutError
            self.sent = True


class Post:
    """A carrier: one POST for each batch, one more request for a cancel."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, connections: Connections, config: RunnerConfig) -> None:
        self._pool, self._connections, self._config = pool, connections, config

    async def carry(self, sending: Sending, listener: Listener) -> Ending:
        """See Carrier."""
        style, progress = style_of(sending.worker), _Progress(listener)
        method, url, headers, body, _ = style.request(sending).dressed(sending.worker, sending.sent_at_ms)
        connect_s = self._config.connect_timeout_s
        timeout = {"connect": connect_s, "pool": connect_s, "write": SEND_S + len(body) / SEND_BYTES_PER_S}
        extensions = {"timeout": timeout, "trace": progress.trace}
        connection = self._connections.one(sending.worker.endpoint)
        with connection, on_behalf_of(sending.worker.standing), awaiting() as awaited:
            try:
                async with self._pool.stream(
                    method, url, headers=headers, content=body, extensions=extensions
                ) as response:
                    awaited.is_here = True
                    return await _hear(response, style, sending, listener, self._config)
            except _NotLetOutError:
                return Ending(End.REFUSED)
            except AnswerGarbled as error:
                return Ending(End.GARBLED, message=str(error))
            except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
                return _broken(error, progress)

    async def cancel(self, sending: Sending, job_id: str, *, at_ms: int, within_s: float) -> Told | None:
        """See Carrier."""
        request = style_of(sending.worker).cancel(sending, job_id)
        if request is None:
            return None
        method, url, headers, *_ = request.dressed(sending.worker, at_ms)
        extensions = {"timeout": {"connect": within_s, "pool": within_s}}
        status = 0
        with trio.move_on_after(within_s), on_behalf_of(sending.worker.standing), awaiting() as awaited:
            try:
                async with self._pool.stream(method, url, headers=headers, extensions=extensions) as response:
                    awaited.is_here = True
                    status = response.status
                    await hear_excerpt(response, within_s)  # read to its end, so that the connection can be kept
                    return Told(status, f"the worker answered {status}")
            except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
                return Told(status, kind_of(error))
        return Told(status, f"no answer within {within_s:g} s")


def _broken(error: Exception, progress: _Progress) -> Ending:
    """The network failed: before anything was sent, or after."""
    message, broke = describe(error), kind_of(error)
    if progress.sent:
        return Ending(End.LOST, message=message, broke=broke)
    crowded = isinstance(error, httpcore2.PoolTimeout) or any(is_ours(cause) for cause in _causes(error))
    return Ending(End.CROWDED if crowded else End.UNREACHABLE, message=message, broke=broke)


def describe(error: BaseException) -> str:
    """What broke, with the name of the errno where one is known: `ECONNREFUSED: …`."""
    text = str(error) or type(error).__name__
    for cause in _causes(error):
        name = errno.errorcode.get(cause.errno or 0) if isinstance(cause, OSError) else None
        if isinstance(cause, OSError) and name:
            return f"{name}: {cause.strerror or text}"
    return text


def kind_of(error: BaseException) -> str:
    """The name of the errno where one is known, else of the error: nothing that came over the wire."""
    name = describe(error).partition(":")[0]
    return name if name in errno.errorcode.values() else type(error).__name__


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
    response: httpcore2.Response, style: Style, sending: Sending, listener: Listener, config: RunnerConfig
) -> Ending:
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    judgement = style.judge(response.status)
    listener.answered(judgement)
    if judgement is Judgement.READ:
        reader = style.reader(sending, headers.get(b"content-type", ""), config.result_bytes_max + FIELDS_BYTES)
        return await _hear_answers(response, headers, reader, listener, config, len(sending.held))
    excerpt = await hear_excerpt(response, config.linger_s)
    message = f"the worker answered {response.status}"
    if 300 <= response.status < 400:
        message += "; redirects are not followed, register the URL it leads to"
    return Ending(
        End.STATUS,
        judgement,
        response.status,
        f"{message}: {excerpt}" if excerpt else message,
        headers.get(b"retry-after"),
    )


async def _hear_answers(
    response: httpcore2.Response,
    headers: dict[bytes, str],
    reader: Reader,
    listener: Listener,
    config: RunnerConfig,
    jobs: int,
) -> Ending:
    coding = headers.get(b"content-encoding", "identity").strip().lower()
    size = 0
    async with aclosing(_pieces(response, jobs)) as chunks:
        async for chunk in chunks:
            if coding != "identity":
                raise AnswerGarbled(f"the answer is encoded as {coding[:50]!r}, which was not asked for")
            size += len(chunk)
            if size > config.answer_bytes_max:
                raise AnswerGarbled(f"the answer has more than the {config.answer_bytes_max} bytes that are read")
            for answer in reader.feed(chunk):
                listener.said(answer)
    _end_if_surplus(response)
    last = reader.end()
    # Without a length the end of the connection is the end of the body, also when the worker died there.
    framed = response.status == 204 or b"content-length" in headers or b"transfer-encoding" in headers
    if not framed:
        return Ending(End.LOST, message="the connection closed, and the answer had no length to tell that it was whole")
    for answer in last:
        listener.said(answer)
    return Ending(End.COMPLETE, status=response.status)


async def _pieces(response: httpcore2.Response, jobs: int) -> AsyncGenerator[bytes]:
    """The body of an answer to so many jobs, as it arrives. Raises AnswerGarbled for one that comes in crumbs."""
    count = size = 0
    async with aclosing(response.aiter_stream()) as pieces:
        async for piece in pieces:
            count, size = count + 1, size + len(piece)
            if count > PIECES_MAX + PIECES_PER_JOB * jobs + size // PIECE_BYTES:
                raise AnswerGarbled(f"the answer comes in crumbs: {count} chunks of {size} bytes; write larger ones")
            if not count % TURN_PIECES:
                await trio.lowlevel.checkpoint()
            yield piece


async def hear_excerpt(response: httpcore2.Response, within_s: float) -> str:
    """The beginning of a body that nobody parses, as text: as much of it as comes `within_s`."""
    begin, size = b"", 0
    try:
        with trio.move_on_after(within_s):
            async with aclosing(_pieces(response, 0)) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    begin = (begin + chunk)[:EXCERPT_BYTES]
                    if size > DRAIN_BYTES_MAX:
                        break
                else:
                    _end_if_surplus(response)
    except (httpcore2.NetworkError, httpcore2.ProtocolError, AnswerGarbled):
        # The status is known and decides; the rest of the page would not change the verdict.
        return begin.decode("utf-8", "replace")
    return begin.decode("utf-8", "replace").strip()


def _end_if_surplus(response: httpcore2.Response) -> None:
    """End a connection that holds more than its answer: the surplus would be taken for the answer to the next request.

    The client offers no way to ask for left-over bytes, so its layers are walked by name. If a layer goes away in a
    new version, tests/runner/test_hostile.py fails.
    """
    connection: Any = getattr(getattr(response.stream, "_stream", None), "_connection", None)
    parser = getattr(connection, "_h11_state", None)
    if parser is not None and parser.trailing_data[0]:
        parser.send_failed()  # a parser in error has its connection closed instead of kept
