"""Sends calls over one connection without waiting for the answers to earlier ones.

So the server has its next call ready when it finishes one.

    call 1  ─send── read ────────────────┐answer
    call 2          send── wait ─────────┴ read ───────┐answer
    call 3                  send── wait ───────────────┴ read ──┐answer

* No task belongs to a connection: the first caller that waits reads the answers of all.
* redis-py opens the connection in a thread (names, TLS, user, database, the check of who answers). Then we use its
  socket.
* An answer that does not come in time breaks the connection. All unanswered calls fail with it, and calls that wait
  behind them are not sent.
* A caller that is cancelled still waits until the call that it sent is answered or times out.
"""

import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import hiredis
import redis
import trio

from jqd.store.functions import is_loaded, is_missing

Words = Sequence[Any]

READ_BYTES = 1 << 16  # read at once; the answer to a claim may have some hundred thousand
_MORE = object()  # stands for an answer that has not come whole yet


class Call:
    """A call that was or will be sent, and its answer or error."""

    __slots__ = ("answer", "bell", "error", "sent", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.sent = 0
        """How often it was sent: twice if the functions had to be loaded first."""
        self.answer: object = _MORE
        self.error: redis.RedisError | None = None
        self.bell: trio.Event | None = None
        """Wakes this call's caller, while another caller reads from the connection; else None."""

    @property
    def is_over(self) -> bool:
        return self.answer is not _MORE or self.error is not None

    def ring(self) -> None:
        if self.bell is not None:
            self.bell.set()


class PipelinedConnection:
    """One open connection and its unanswered calls. Once broken, it stays broken."""

    def __init__(
        self,
        connection: Any,
        timeout_s: float,
        load: Words,
        broke: Callable[[redis.RedisError], None],
    ) -> None:
        """`connection`: an open redis-py connection, whose socket is ours now. `load`: the command that loads our
        functions. `broke`: called when calls are lost."""
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._socket.setblocking(False)
        self._timeout_s, self._load, self._broke = timeout_s, load, broke
        self._answers: Any = hiredis.Reader(
            protocolError=redis.InvalidResponse,
            replyError=redis.connection.DefaultParser.parse_error,
            notEnoughData=_MORE,
        )
        self._buffer = bytearray(READ_BYTES)
        self._sent: deque[Call] = deque()
        self._again: list[Call] = []  # calls to be sent again, for the server did not have the function
        self._loading: Call | None = None
        self._reading = False
        self._room = trio.Event()
        self.error: redis.RedisError | None = None
        """Why the connection is broken; None: it works."""

    @property
    def is_idle(self) -> bool:
        return not self._sent and not self._again

    def is_stale(self) -> bool:
        """Return whether the server closed the idle connection, or sent something that nobody asked for."""
        try:
            self._socket.recv_into(self._buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True

    async def wait_room(self, calls_max: int) -> None:
        """Wait until another call may be sent, or the connection is broken."""
        while self.error is None and (self._again or len(self._sent) >= calls_max):
            self._room = trio.Event()
            await self._room.wait()

    async def send(self, call: Call) -> None:
        """Send a call. Only one caller may send at a time. An error is kept in the call, not raised."""
        try:
            await self._put(call)
        except redis.RedisError as error:
            self.close(error)

    async def wait_over(self, call: Call) -> None:
        """Wait until a call that was sent has its answer or error."""
        while not call.is_over:
            if self._reading:
                call.bell = trio.Event()
                await call.bell.wait()
                continue
            self._reading = True
            try:
                await self._read()
            except redis.RedisError as error:
                self.close(error)
            except BaseException:
                self.close(redis.ConnectionError("whoever read the answers died of an internal error"))
                raise
            finally:
                self._reading = False
        for next_one in self._sent:
            if next_one is not self._loading:  # nobody waits for the load command
                next_one.ring()
                return

    def close(self, error: redis.RedisError) -> None:
        """Close the connection. All unanswered calls end with `error`; whether the server ran them stays unknown."""
        if self.error is not None:
            return
        self.error = error
        if not self.is_idle:
            self._broke(error)
        for call in (*self._again, *self._sent):
            call.error = error
            call.ring()
        self._again.clear()
        self._sent.clear()
        self._room.set()
        trio.lowlevel.notify_closing(self._socket)
        self._connection.disconnect()

    async def _put(self, call: Call) -> None:
        call.sent += 1
        self._sent.append(call)
        left = memoryview(hiredis.pack_command(tuple(call.words)))
        while left:
            left = left[await self._do(self._socket.send, left, trio.lowlevel.wait_writable, "no more was taken") :]

    async def _read(self) -> None:
        count = await self._do(self._socket.recv_into, self._buffer, trio.lowlevel.wait_readable, "no answer")
        if not count:
            raise redis.ConnectionError("the server closed the connection")
        self._answers.feed(self._buffer, 0, count)
        while (answer := self._answers.gets()) is not _MORE:
            self._take(answer)
        if self._again and not self._sent:
            await self._send_again()
        self._room.set()

    def _take(self, answer: Any) -> None:
        if not self._sent:
            raise redis.InvalidResponse("an answer that nobody asked for")
        if isinstance(answer, redis.RedisError) and not isinstance(answer, redis.ResponseError):
            raise answer  # an error of the connection, not of this call
        call = self._sent.popleft()
        if is_missing(answer):
            if call.sent == 1:
                self._again.append(call)
                return
            answer = (self._loading.error if self._loading is not None else None) or answer
        if isinstance(answer, redis.ResponseError) and not (call is self._loading and is_loaded(answer)):
            call.error = answer
        else:
            call.answer = answer
        call.ring()

    async def _send_again(self) -> None:
        """Load our functions, then send the calls again that the server refused because it lacked them.

        No other call is sent before these. A later call may have run before a refused one that it has to follow: its
        answer then says that it came too early."""
        self._loading = Call(self._load)
        await self._put(self._loading)
        for call in self._again:
            await self._put(call)
        self._again.clear()

    async def _do(
        self, work: Callable[[Any], int], buffer: Any, wait: Callable[[Any], Awaitable[None]], late: str
    ) -> int:
        """Call `work(buffer)` on the socket, at once or as soon as the socket is ready, and return its result. `wait`:
        waits until the socket is ready for this work. `late`: begins the message of the error for a timeout. Raises
        redis.ConnectionError, redis.TimeoutError."""
        try:
            while True:
                try:
                    return work(buffer)
                except BlockingIOError:
                    ready = wait
                except ssl.SSLWantReadError:
                    ready = trio.lowlevel.wait_readable
                except ssl.SSLWantWriteError:
                    ready = trio.lowlevel.wait_writable
                with trio.move_on_after(self._timeout_s) as patience:
                    await ready(self._socket)
                if patience.cancelled_caught:
                    raise redis.TimeoutError(f"{late} for {self._timeout_s} s")
        except (OSError, trio.ClosedResourceError, trio.BusyResourceError) as error:
            # Closed: by the task that reads or the one that writes. Busy: TLS needs for one what the other waits for.
            raise redis.ConnectionError(f"the connection to the server broke: {error}") from error


class Pipeline:
    """Makes calls to one server, in order, over a connection that is opened when it is needed."""

    def __init__(
        self,
        open_one: Callable[[], Awaitable[Any]],
        calls_max: int,
        timeout_s: float,
        load: Words,
    ) -> None:
        """`open_one`: returns an open redis-py connection, or raises redis.RedisError. `calls_max`: how many calls may
        be unanswered at once. `load`: the command that loads our functions into a server that lacks them."""
        self._open_one, self._calls_max, self._timeout_s, self._load = open_one, calls_max, timeout_s, load
        self._turn = trio.StrictFIFOLock()  # held by the caller that sends
        self._wire: PipelinedConnection | None = None
        self._failure: redis.RedisError | None = None
        self._failures = 0
        self._retired = False

    async def call(self, words: Words) -> object:
        """Make a call and return its answer. Raises redis.RedisError.

        If the connection breaks before this call is sent, earlier calls have failed: then this one fails, too, unsent.
        """
        call, failures = Call(words), self._failures
        if self._turn.locked():
            await self._turn.acquire()
        else:  # the usual case: to yield to the scheduler would add a fifth to the cost of a call
            await trio.lowlevel.checkpoint_if_cancelled()
            self._turn.acquire_nowait()
        try:
            if self._wire is not None:
                await self._wire.wait_room(self._calls_max)
        except BaseException:
            self._turn.release()
            raise
        with trio.CancelScope(shield=True):
            try:
                if self._failures != failures:
                    raise redis.ConnectionError(f"not sent, for the connection broke before: {self._failure}")
                wire = await self._open()
                await wire.send(call)
            finally:
                self._turn.release()
            await wire.wait_over(call)
        if self._retired:
            self.retire()
        if call.error is not None:
            raise call.error
        return call.answer

    async def _open(self) -> PipelinedConnection:
        if self._wire is not None and self._wire.is_idle and self._wire.is_stale():
            self._wire.close(redis.ConnectionError("the server closed the connection"))
        if self._wire is None or self._wire.error is not None:
            try:
                self._wire = PipelinedConnection(await self._open_one(), self._timeout_s, self._load, self._fail)
            except redis.RedisError as error:
                self._fail(error)
                raise
        return self._wire

    def _fail(self, error: redis.RedisError) -> None:
        self._failures += 1
        self._failure = error

    def retire(self) -> None:
        """Close the connection as soon as all calls that were sent are answered."""
        self._retired = True
        if self._wire is not None and self._wire.is_idle:
            self.close()

    def close(self) -> None:
        """Close the connection. No call may be in flight."""
        if self._wire is not None:
            self._wire.close(redis.ConnectionError("the store was closed"))
            self._wire = None
