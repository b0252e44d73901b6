"""Calls that follow one another on one connection, sent without waiting for the answers to those before them.

So the server has its next call at hand when it is through with one, while we make the one after that.

    call 1  ─send──────────────────────┐answer
    call 2        ─send, read 1────────┴───────────────┐answer      one thread at a time is at the connection:
    call 3                          ─send, read 2──────┴───────     TLS does not bear two

Whoever sends reads the answers to the calls before his own; whoever nobody follows reads his own. An answer that does
not come in time breaks the connection, and with it all calls that are unanswered or were to follow.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
import redis
import trio

Words = Sequence[Any]


@dataclass(slots=True, eq=False)
class Ticket:
    """One call on its way."""

    words: bytes
    """As they go over the wire."""
    by_source: Callable[[], Words]
    """The same call for a server that does not know the script."""
    unanswered: bool = True
    answer: object = None
    error: redis.RedisError | None = None
    patience: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Its caller's wait to read the answer himself."""

    def close(self, answer: object = None, error: redis.RedisError | None = None) -> None:
        """This is what came of it."""
        self.answer, self.error, self.unanswered = answer, error, False


class Line:
    """The calls of one lane. Its connection is borrowed from the pool while any of them is unanswered."""

    def __init__(self, pool: "redis.ConnectionPool") -> None:
        self._pool: Any = pool
        self._connection: Any = None
        self._turn = trio.StrictFIFOLock()  # at the connection
        self._limiter = trio.CapacityLimiter(1)
        self._sent: deque[Ticket] = deque()
        self._breaks = 0

    async def call(self, words: Words, by_source: Callable[[], Words]) -> object:
        """The answer. Calls are sent in the order in which they came. Raises redis.RedisError.

        A call is not sent when one before it had not been answered yet and then broke the connection.
        """
        ticket, breaks = Ticket(hiredis.pack_command(tuple(words)), by_source), self._breaks
        async with self._turn:
            if self._breaks != breaks:
                raise redis.ConnectionError("a call before this one broke the connection, so it was not sent")
            await self._do(self._send, ticket)
        if ticket.unanswered:
            with ticket.patience:
                async with self._turn:
                    if ticket.unanswered:
                        await self._do(self._read, 1)  # all before it were read when it was sent
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer

    async def _do(self, work: Callable[[Any], None], argument: object) -> None:
        before = list(self._sent)
        # A caller who is cancelled leaves when this is done: his answer is read by who comes next.
        await trio.to_thread.run_sync(work, argument, limiter=self._limiter, abandon_on_cancel=False)
        for ticket in before:
            if not ticket.unanswered:
                ticket.patience.cancel()

    # ------------------------------------------------------------ in a thread

    def _send(self, ticket: Ticket) -> None:
        self._sent.append(ticket)
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
            self._connection.send_packed_command([ticket.words], check_health=False)
        except redis.RedisError as error:
            self._break(error)
        else:
            self._read(len(self._sent) - 1)

    def _read(self, count: int) -> None:
        """The next answers."""
        try:
            while count > 0 and self._sent:
                count -= 1
                if self._read_one(self._sent[0]):
                    self._sent.popleft()
                else:
                    self._call_by_source()
        except redis.RedisError as error:
            self._break(error)
        else:
            if not self._sent:
                self._give_back()

    def _read_one(self, ticket: Ticket) -> bool:
        """False when the server did not know the script. What it says of the connection is raised."""
        try:
            ticket.close(self._connection.read_response())
        except redis.exceptions.NoScriptError:
            return False
        except redis.ResponseError as error:
            ticket.close(error=error)
        return True

    def _call_by_source(self) -> None:
        """The server has lost its scripts: what was sent meanwhile met the same. Sending the source loads them again.

        One that did get through came too early, and its answer says so.
        """
        first, *behind = self._sent
        for ticket in [first, *(ticket for ticket in behind if not self._read_one(ticket))]:
            self._connection.send_packed_command([hiredis.pack_command(tuple(ticket.by_source()))], check_health=False)
            try:
                ticket.close(self._connection.read_response())
            except redis.ResponseError as error:
                ticket.close(error=error)
        self._sent.clear()

    def _break(self, error: redis.RedisError) -> None:
        """Nobody knows what became of what is unanswered, and what comes over this connection is nobody's."""
        self._breaks += 1
        for ticket in self._sent:
            if ticket.unanswered:
                ticket.close(error=error)
        self._sent.clear()
        if self._connection is not None:
            self._connection.disconnect()
            self._give_back()

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        self._pool.release(connection)
