"""Sends jobs in HTTP requests, passes each outcome to the delivery as it arrives, and returns how the request ended.

The protocol makes the request and interprets the answer. Redirects are never followed, compression is never asked for,
an answer's size is bounded, and a connection that sent more than its answer is not used again.
"""

import enum
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from jqd.domain.errors import AnswerGarbled
from jqd.domain.followers import FOLLOWERS_BYTES_MAX
from jqd.domain.results import LARGE_BYTES
from jqd.runner.config import RunnerConfig
from jqd.runner.endpoint import server_of
from jqd.runner.protocols import STYLES
from jqd.runner.protocols.protocol import READ_AT_ONCE_BYTES, Answer, Judgement, Reader, Sending, WorkerProtocol
from jqd.runner.ssrf import AddressPolicy, policy_here
from jqd.runner.transport.http1 import LostError, Origin, Wire
from jqd.runner.transport.large_reads import LargeReads, ReadPermit
from jqd.runner.transport.network import CrowdedError, UnreachedError, UnsentError
from jqd.runner.transport.pool import Connections, Pool

if TYPE_CHECKING:
    from jqd.runner.delivery import Delivery

FIELDS_BYTES = 131_072  # size of an outcome's fields beside its result and followers: message, error, ids
EXCERPT_BYTES = 2_000  # of an error page that are kept for the job's message: its headline, not its stylesheet
# More bytes of arguments take over a millisecond to convert to JSON, so a thread does it, in pieces
# (`domain/json_ext.py`): one long call into C would hold up all threads.
APART_BYTES = 16_384
PIECES_MAX = 8_192  # the most chunks in which a body may arrive, as each costs time, even one of a single byte
PIECES_PER_JOB = 64  # so many chunks more for each job that was sent
PIECE_BYTES = 256  # and one chunk more for each so many bytes
DRAIN_BYTES_MAX = 65_536  # read of a body that nobody needs, so that the connection can be used again

T = TypeVar("T")
_reading = trio.CapacityLimiter(1)  # more threads of Python would only take turns


class End(enum.Enum):
    COMPLETE = enum.auto()
    STATUS = enum.auto()
    """The status alone decides what becomes of the jobs."""
    GARBLED = enum.auto()
    """The rest of the answer cannot be read."""
    LOST = enum.auto()
    """The connection broke, and the worker may have received something."""
    UNREACHABLE = enum.auto()
    """No connection could be made, or it broke before the worker received anything."""
    CROWDED = enum.auto()
    """There was no free connection, or this process may not open more."""
    REFUSED = enum.auto()
    """The delivery did not allow the request to be sent: see `Delivery.sending`."""


class Ending(NamedTuple):
    """How a request ended."""

    end: End
    judgement: Judgement = Judgement.READ
    status: int = 0
    message: str = ""
    retry_after: str | None = None
    broke: str = ""
    is_shared: bool = True
    """Only for UNREACHABLE: whether every worker at the host and port is unreachable."""

    @property
    def brief(self) -> str:
        """How the request ended, for logs. Unlike `message` it contains no text from the worker."""
        what = f"the worker answered {self.status}" if self.end is End.STATUS else self.end.name.lower()
        return f"{what}: {self.broke}" if self.broke else what


class Post:
    """Sends requests to workers: one for each batch, and one for each cancel."""

    def __init__(self, pool: Pool, connections: Connections, config: RunnerConfig, large: LargeReads) -> None:
        self._large = large
        self._pool, self._connections, self._config = pool, connections, config
        self._writing = trio.CapacityLimiter(1)  # more threads of Python would only take turns

    async def carry(self, sending: Sending, delivery: "Delivery") -> Ending:
        """Send the jobs and read the answer. Never raises for what the network or the worker does.

        There is no time limit: the caller cancels this when all jobs have ended.
        """
        worker, style, size = sending.worker, STYLES[sending.worker.style], 0
        for each in sending.held:
            size += len(each.job.argument)
        if size <= APART_BYTES or style.copies(worker):
            request = style.request(sending)
        else:  # large arguments become JSON in a thread, one request after the other, so that the loop serves others
            write = trio.to_thread.run_sync
            request = await write(style.request, sending, abandon_on_cancel=True, limiter=self._writing)
        if worker.secrets:
            request = request.signed(worker, sending.sent_at_ms)
        endpoint, origin = _place(worker.url, worker.standing, worker.machine, worker.tenant)
        wire: Wire | None = None
        place = worker.tenant, endpoint
        self._connections.begin(place)
        try:
            wire = await self._pool.take(origin, self._config.connect_timeout_s)
            # Asked as late as possible, because connecting may have taken seconds.
            if not delivery.sending():
                return Ending(End.REFUSED)
            await wire.ask(request)
            self._connections.unanswered.pop(place, None)
            judgement = style.judge(wire.status)
            delivery.answered(judgement)
            if judgement is Judgement.READ:
                return await _read_answer(wire, style, sending, delivery, self._config, self._large)
            return await _read_status(wire, judgement, self._config)
        except CrowdedError as error:
            return Ending(End.CROWDED, message=str(error), broke=error.kind)
        except UnreachedError as error:
            return Ending(End.UNREACHABLE, message=str(error), broke=error.kind, is_shared=error.is_shared)
        except AnswerGarbled as error:
            return Ending(End.GARBLED, message=str(error))
        except LostError as error:
            return Ending(End.LOST, message=str(error), broke=error.kind)
        finally:
            if wire is not None:
                self._pool.give(wire)
            self._connections.end(place)

    async def cancel(self, sending: Sending, job_id: str, *, at_ms: int, within_s: float) -> tuple[int, str] | None:
        """Send the worker a cancel for one job. Returns the status of its answer (0: none came) and, for logs, what was
        wrong; None: its protocol has no cancels."""
        worker = sending.worker
        request = STYLES[worker.style].cancel(sending, job_id)
        if request is None:
            return None
        status = 0
        with trio.move_on_after(within_s):
            try:
                origin = _place(worker.url, worker.standing, worker.machine, worker.tenant)[1]
                wire = await self._pool.take(origin, within_s)
            except UnsentError as error:
                return 0, error.kind
            try:
                await wire.ask(request.signed(worker, at_ms))
                status = wire.status
                await read_excerpt(wire, within_s)  # read to its end, so that the connection can be kept
                return status, f"the worker answered {status}"
            except LostError as error:
                return status, error.kind
            finally:
                self._pool.give(wire)
        return status, f"no answer within {within_s:g} s"


@lru_cache(maxsize=1_000)  # more workers than are used at once; splitting the URL each time would cost as much as TCP
def _place(url: str | None, standing: AddressPolicy, where: str, tenant: str) -> tuple[str, Origin]:
    """Return host and port as written in the worker's URL, and the origin of its connections. `where`: the machine
    where it was registered."""
    assert url is not None, "something is to be sent to a worker without a URL"
    scheme, host, port = server_of(url)
    return url.split("/", 3)[2], Origin(scheme, host, port, policy_here(standing, where), tenant)


async def _read_answer(
    wire: Wire, style: WorkerProtocol, sending: Sending, delivery: "Delivery", config: RunnerConfig, large: LargeReads
) -> Ending:
    permit: ReadPermit | None = None
    coding, size = wire.headers.get(b"content-encoding", "identity").strip().lower(), 0
    # Compressed bytes are not of the type that the head names.
    content_type = wire.headers.get(b"content-type", "") if coding == "identity" else ""
    value_bytes_max = config.result_bytes_max + FOLLOWERS_BYTES_MAX + FIELDS_BYTES
    reader = style.reader(sending, content_type, value_bytes_max, wire.status)
    try:
        while chunk := await (wire.read() if permit is None else permit.read(wire)):
            if coding != "identity" and not reader.is_decided:
                raise AnswerGarbled(f"the answer is encoded as {coding[:50]!r}, which was not asked for")
            size += len(chunk)
            if size > config.answer_bytes_max:
                raise AnswerGarbled(f"the answer has more than the {config.answer_bytes_max} bytes that are read")
            if wire.pieces > PIECES_MAX + PIECES_PER_JOB * len(sending.held) + size // PIECE_BYTES:
                raise AnswerGarbled(f"the answer comes in crumbs: {wire.pieces} of {size} bytes; write larger ones")
            is_costly = size > READ_AT_ONCE_BYTES and reader.is_costly(chunk)
            if is_costly:
                with delivery.pause_timeouts():
                    answers = await _read_apart(reader, chunk)
            else:
                answers = reader.feed(chunk)
            delivery.receive(answers)
            if size > LARGE_BYTES:
                permit = permit or ReadPermit(large, sending.worker.tenant)
                with delivery.pause_timeouts():
                    await permit.check_size(reader.held)
        if not size and b"transfer-encoding" in wire.headers:
            delivery.receive(reader.feed(b""))  # a chunked body is a body, also an empty one: it names no job
        if size > READ_AT_ONCE_BYTES and reader.is_costly(b""):
            with delivery.pause_timeouts():
                last = await _apart(reader.end)
        else:
            last = reader.end()
        # Without a length a body ends with the connection, also when the worker died in the middle.
        framed = wire.status == 204 or b"content-length" in wire.headers or b"transfer-encoding" in wire.headers
        if not framed and not reader.is_decided:
            return Ending(
                End.LOST, message="the connection closed, and the answer had no length to tell that it was whole"
            )
        delivery.receive(last)
        return Ending(End.COMPLETE, status=wire.status)
    finally:
        if permit is not None:
            permit.release()


async def _read_status(wire: Wire, judgement: Judgement, config: RunnerConfig) -> Ending:
    """Return the ending of a request whose status alone decides. Its message contains the beginning of the body."""
    excerpt = await read_excerpt(wire, config.linger_s)
    message = f"the worker answered {wire.status}"
    if 300 <= wire.status < 400:
        message += "; redirects are not followed, register the URL it leads to"
    message = f"{message}: {excerpt}" if excerpt else message
    return Ending(End.STATUS, judgement, wire.status, message, wire.headers.get(b"retry-after"))


async def _read_apart(reader: Reader, chunk: bytes) -> Iterable[Answer]:
    """Decode a large part of a JSON answer in a thread. If it turns out invalid, the answers before the error are
    returned first."""
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


async def read_excerpt(wire: Wire, within_s: float) -> str:
    """Read a body to its end, for at most `within_s`, so that the connection can be reused. Returns the beginning of
    the body as text."""
    begin, size = b"", 0
    try:
        with trio.move_on_after(within_s):
            while size <= DRAIN_BYTES_MAX and (chunk := await wire.read()):
                size += len(chunk)
                begin = (begin + chunk)[:EXCERPT_BYTES]
    except LostError:
        # The status is known and decides; the rest of the page would change nothing.
        return begin.decode("utf-8", "replace")
    return begin.decode("utf-8", "replace").strip()
