"""One POST: send a body, hear the answer while it arrives, say how it ended.

Nothing of the job model is decided here. Redirects are never followed, compression is never asked for, the answer's
size is bounded, and a connection that said more than its answer is not used again. The time an answer may take is
bounded from outside: the caller cancels when no job of the request can still be waited for.
"""

import enum
import errno
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import httpcore2
import trio

from jqd.runner.pool import OURS
from jqd.runner.stream import AnswerReader
from jqd.runner.verdict import Judgement, judge
from jqd.runner.wire import Answer, encoding_of
from jqd.words.errors import AnswerGarbled

EXCERPT_BYTES = 2_000  # of an error page, kept for the job's message: its headline, not its stylesheet
VALUES_PER_JOB = 4  # of an answer: a note that it was begun and its outcome, and each once more
VALUES_MORE = 64  # and some about jobs it was not asked for, and arrays around all
DRAIN_BYTES_MAX = 65_536  # of a body nobody reads, taken in so that the connection can be used again


@dataclass(frozen=True, slots=True)
class PostLimits:
    """Bounds of one POST."""

    connect_timeout_s: float
    value_bytes_max: int
    """Of one outcome."""
    answer_bytes_max: int
    """Of a whole answer."""
    excerpt_s: float = 1.0
    """For a body that nobody parses, such as an error's page: the status decides without it."""


class Listener(Protocol):
    """Told what happens while a POST is under way; never waits."""

    @property
    def size(self) -> int:
        """Jobs of the request: so many outcomes are asked for."""
        ...

    def sending(self) -> bool:
        """The next byte goes to the worker. False: do not send."""
        ...

    def answered(self, judgement: Judgement) -> None:
        """The status of the answer is here."""
        ...

    def said(self, answer: Answer) -> None:
        """One value of the answer is here."""
        ...


class End(enum.Enum):
    """How a POST ended."""

    COMPLETE = enum.auto()
    """The whole answer was read."""
    EMPTY = enum.auto()
    """A 2xx that says by its framing that it has no body."""
    STATUS = enum.auto()
    """Another status; see `judgement`."""
    GARBLED = enum.auto()
    """The answer cannot be read on."""
    LOST = enum.auto()
    """The connection broke after something may have reached the worker."""
    UNREACHABLE = enum.auto()
    """It broke before: the worker saw nothing."""
    CROWDED = enum.auto()
    """It had no connection to go out on: all are taken, or this process may open no more."""
    REFUSED = enum.auto()
    """The listener did not let it go out."""


class Ending(NamedTuple):
    """How a POST ended, and why."""

    end: End
    judgement: Judgement = Judgement.READ
    status: int = 0
    message: str = ""
    retry_after: str | None = None
    """The header as it came."""
    reused: bool = False
    """LOST on a connection that had been kept, with nothing heard: the worker may have closed it as we wrote."""
    broke: str = ""
    """What broke the connection: see `kind_of`."""

    @property
    def brief(self) -> str:
        """How it ended, for logs: `message` may hold what the worker wrote, which is its jobs' business alone."""
        what = f"the worker answered {self.status}" if self.end is End.STATUS else self.end.name.lower()
        return f"{what}: {self.broke}" if self.broke else what


class _NotLetOutError(Exception):
    """The listener said no."""


class _Progress:
    """What has happened to a request so far, from the client's trace events."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.connected = False
        self.sent = False
        self.answered = False

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self.connected = True
        elif event == "http11.send_request_headers.started":
            # As late as can be: a connection may have taken seconds to come about.
            if not self._listener.sending():
                raise _NotLetOutError
            self.sent = True


async def post(
    pool: httpcore2.AsyncConnectionPool,
    url: str,
    headers: list[tuple[str, str]],
    body: bytes,
    *,
    lightjq: bool,
    listener: Listener,
    limits: PostLimits,
) -> Ending:
    """Send `body`, tell `listener` what comes back. Never raises for what the network or the worker does."""
    progress = _Progress(listener)
    timeout = {"connect": limits.connect_timeout_s, "pool": limits.connect_timeout_s}
    try:
        async with pool.stream(
            "POST", url, headers=headers, content=body, extensions={"timeout": timeout, "trace": progress.trace}
        ) as response:
            progress.answered = True
            return await _hear(response, judge(response.status, lightjq=lightjq), listener, limits)
    except _NotLetOutError:
        return Ending(End.REFUSED)
    except AnswerGarbled as error:
        return Ending(End.GARBLED, message=str(error))
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        if not progress.sent:
            if isinstance(error, httpcore2.PoolTimeout) or any(is_ours(cause) for cause in _causes(error)):
                return Ending(End.CROWDED, message=describe(error), broke=kind_of(error))
            return Ending(End.UNREACHABLE, message=describe(error), broke=kind_of(error))
        reused = not progress.connected and not progress.answered
        return Ending(End.LOST, message=describe(error), reused=reused, broke=kind_of(error))


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
    """All that led to `error`, itself first; bounded, for chains may be circular."""
    stack, seen = [error], 0
    while stack and seen < 64:
        seen += 1
        each = stack.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            stack.extend(each.exceptions)
        stack.extend(arg for arg in each.args if isinstance(arg, BaseException))
        stack.extend(linked for linked in (each.__context__, each.__cause__) if linked is not None)


async def _hear(response: httpcore2.Response, judgement: Judgement, listener: Listener, limits: PostLimits) -> Ending:
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    listener.answered(judgement)
    if judgement is Judgement.READ:
        return await _hear_outcomes(response, headers, listener, limits)
    excerpt = await hear_excerpt(response, limits.excerpt_s)
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


async def _hear_outcomes(
    response: httpcore2.Response, headers: dict[bytes, str], listener: Listener, limits: PostLimits
) -> Ending:
    coding = headers.get(b"content-encoding", "identity").strip().lower()
    reader: AnswerReader | None = None
    size = 0
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            if reader is None:
                if coding != "identity":
                    raise AnswerGarbled(f"the answer is encoded as {coding[:50]!r}, which was not asked for")
                encoding = encoding_of(headers.get(b"content-type", ""))
                reader = AnswerReader(
                    encoding,
                    value_bytes_max=limits.value_bytes_max,
                    values_max=VALUES_PER_JOB * listener.size + VALUES_MORE,
                )
            size += len(chunk)
            if size > limits.answer_bytes_max:
                raise AnswerGarbled(f"the answer has more than the {limits.answer_bytes_max} bytes that are read")
            for answer in reader.feed(chunk):
                listener.said(answer)
    _end_if_surplus(response)
    if reader is not None:
        reader.end()
    # Without a length the end of the connection is the end of the body, also when the worker died there.
    framed = response.status == 204 or b"content-length" in headers or b"transfer-encoding" in headers
    if not framed:
        return Ending(End.LOST, message="the connection closed, and the answer had no length to tell that it was whole")
    return Ending(End.COMPLETE if size else End.EMPTY, status=response.status)


async def hear_excerpt(response: httpcore2.Response, within_s: float) -> str:
    """The beginning of a body nobody parses, as text; what has come of it `within_s`."""
    begin, size = b"", 0
    try:
        with trio.move_on_after(within_s):
            async with aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    begin = (begin + chunk)[:EXCERPT_BYTES]
                    if size > DRAIN_BYTES_MAX:
                        break
                else:
                    _end_if_surplus(response)
    except (httpcore2.NetworkError, httpcore2.ProtocolError):
        # The status is known and decides; what the page would have said besides is not worth another verdict.
        return begin.decode("utf-8", "replace")
    return begin.decode("utf-8", "replace").strip()


def _end_if_surplus(response: httpcore2.Response) -> None:
    """A second answer nobody asked for would be taken for the answer to the next request: end such a connection.

    The client offers no way to ask whether bytes are left over, so its layers are walked by name; a layer that is
    not there any more makes tests/runner/test_hostile.py fail.
    """
    connection: Any = getattr(getattr(response.stream, "_stream", None), "_connection", None)
    parser = getattr(connection, "_h11_state", None)
    if parser is not None and parser.trailing_data[0]:
        parser.send_failed()  # a parser in error has its connection closed instead of kept
