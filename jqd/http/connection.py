"""One client connection, from its first byte to its last. Its requests are served in order, one at a time, in one task.

Any error ends only this connection: `Connection.run` never raises an Exception.
"""

import json
import math
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import trio

from jqd.domain import media
from jqd.http.config import ListenerConfig
from jqd.http.connection_limit import ConnectionLimit, address_of
from jqd.http.exchange import AT_LOOK, READ_BYTES, Address, App, Dates, Ends, Exchange, Wire, header_lines, render_head
from jqd.http.fairness import HANDSHAKE, OwnerQueues, Urgent, Whose, by_address, not_urgent
from jqd.http.head import Head, check_start, read_head
from jqd.http.internal_error import log_event, log_internal_error, place_of
from jqd.http.request import Refused, Response
from jqd.http.transport import NotAgreedError, Transport

HEAD_READ_BYTES = 16_384  # of one read before a request's head is known, as there may be thousands of connections
KEPT_HEADS = 1_024  # parsed heads in the cache: some 3 MiB
KEPT_BYTES = 1_024  # a longer head is not kept: those of programs have some 200 bytes
NO_CERTIFICATE = frozenset({"PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"})  # OpenSSL's errors
LINE_MAX = 16_384  # if a too long head has no line end within so many bytes, its first line is blamed (414, not 431)

TOO_SLOW = "the request came too slowly, or was not complete in time; nothing was taken"


class ServerContext:
    """The state that all connections of a listener share: limits, caches and queues."""

    def __init__(
        self,
        app: App,
        config: ListenerConfig,
        log: Any,
        server: Address,
        *,
        whose: Whose = by_address,
        urgent: Urgent = not_urgent,
    ) -> None:
        self.lines = OwnerQueues()
        self.app = self.lines.share(app, whose, urgent)
        self.config = config
        self.log = log
        self.server = server
        self.dates = Dates()
        self.warn: Callable[..., object] = log.warning
        """Logs an event as a warning. The listener replaces this function by one that logs the same event at most once
        a minute."""
        self.limit: ConnectionLimit[Connection] = ConnectionLimit(
            config.total(), config.of_one_address(), config.for_newcomers()
        )
        self._kept = lru_cache(maxsize=KEPT_HEADS)(read_head)

    def change(self, config: ListenerConfig) -> None:
        """Use other limits from now on. Drops the cached heads, because they were checked against the old limits."""
        self.config = config
        self.limit.total_max, self.limit.address_max = config.total(), config.of_one_address()
        self.limit.new_max = config.for_newcomers()
        for connection in self.limit.present:
            connection.change(config)
        self._kept.cache_clear()

    def not_agreed(self, why: str, peer: str) -> None:
        """Log a failed TLS handshake: a missing client certificate as a warning, any other failure at the level
        debug."""
        if why in NO_CERTIFICATE:
            mend = "http.tls_clients asks each client for a certificate of its authorities"
            log_event(self.warn, "http.no_certificate", why=why, peer=peer, mend=mend)
        else:
            log_event(self.log.debug, "http.not_agreed", why=why, peer=peer)

    def read_head(self, data: bytes) -> Head:
        """Parse the head of a request. Results are cached, because programs send the same heads again and again."""
        return self._kept(data) if len(data) <= KEPT_BYTES else read_head(data)


class Connection:
    """Serves the requests of one client connection."""

    __slots__ = ("_asked", "_bye", "_context", "_linger", "_scope", "_wire", "_within", "address", "client")

    def __init__(self, context: ServerContext, pipe: Transport, client: Address) -> None:
        self.client = client
        self.address = address_of(client[0])
        self._context = context
        self._wire = Wire(pipe, context.config, context.dates, Ends(client, context.server, context.config.scheme))
        self._scope = trio.CancelScope()
        self._asked: Exchange | None = None
        self._within = False  # whether a request has begun: its first byte has arrived
        self._bye = b""
        self._linger = False

    async def run(self) -> None:
        """Serve the connection until it ends. Never raises an Exception."""
        whole = False
        try:
            with self._scope:
                if not self._bye:
                    await self._serve()
            if self._scope.cancelled_caught:
                self._prepare_408()
            whole = await self._end()
        except* trio.BrokenResourceError as group:
            log_event(self._context.log.debug, "http.broken", peer=self.client[0], place=place_of(group))
        except* Exception as group:  # noqa: BLE001 - any error ends this connection alone
            log_internal_error(self._context.log, "http.failed", group, peer=self.client[0])
        finally:
            self._let_go(whole)

    async def turn_away(self, detail: str) -> None:
        """Answer with 503 and close the connection, because there are too many connections."""
        self._send_last(503, detail, retry_after_s=1)
        await self.run()

    def look(self, now_s: float) -> None:
        """Check the connection; the listener does so at short intervals. If its data comes or goes too slowly, end the
        connection. If the client has left, cancel the work for its request."""
        if self._asked is not None:
            self._asked.look()
        wire = self._wire
        if wire.read_due_s == AT_LOOK:
            wire.read_due_s = now_s + wire.config.idle_s
        if wire.read_due_s < now_s or wire.write_due_s < now_s:
            self._scope.cancel()

    def give_way(self) -> None:
        """Close the connection at once, without waiting for the client, because a new connection is opened instead."""
        self._linger = self._within = False
        self._scope.cancel()

    def change(self, config: ListenerConfig) -> None:
        self._wire.config = config

    def close_soon(self) -> None:
        """Let the connection close after the request that is being served."""
        self._wire.closing = True

    # ------------------------------------------------------------ its life

    async def _serve(self) -> None:
        wire = self._wire
        try:
            wire.read_due_s = trio.current_time() + self._context.config.handshake_s
            self._context.limit.mark_idle(self)  # a silent client must not keep others out
            await self._handshake()
            while (head := await self._read_head()) is not None:
                if not await self._answer(head):
                    return
                if self._wire.buffer:  # the client sent several requests at once: let others have their turn
                    await trio.lowlevel.checkpoint()
        except NotAgreedError as error:
            self._bye = error.last
            self._context.not_agreed(error.why, self.client[0])
        except Refused as refused:
            self._send_last(refused.status, refused.detail)

    async def _handshake(self) -> None:
        """Do the TLS handshake, if the listener uses TLS. Handshakes are much work. So an address with many handshakes
        has to wait for those of other addresses."""
        limiter, wire, entered = self._context.lines.handshakes, self._wire, False

        async def turn() -> None:
            nonlocal entered
            entered = True
            if not limiter.enter(self.address):
                wire.read_due_s = math.inf  # the client is not to blame for this delay
                await limiter.wait(self.address, HANDSHAKE)
            wire.read_due_s = trio.current_time() + wire.config.handshake_s

        try:
            await self._wire.pipe.begin(turn)
        finally:
            if entered:
                limiter.leave(self.address)

    async def _read_head(self) -> Head | None:
        """Read and return the head of the next request; None if the client has closed the connection or the listener is
        closing. Raises Refused, trio.BrokenResourceError."""
        wire, config, limit = self._wire, self._context.config, self._context.limit
        buffer = wire.buffer
        self._asked = None
        if not buffer:
            if not self._is_next():
                return None
            buffer += await wire.pipe.receive_next(HEAD_READ_BYTES)
            if not buffer:
                return None
        self._within = True
        wire.begin_request()
        while True:
            while buffer.startswith(b"\r\n"):  # old clients send a line end after a body
                del buffer[:2]
            end = buffer.find(b"\r\n\r\n", 0, config.head_bytes_max) + 4
            if end > 3:
                data = bytes(buffer[:end])
                del buffer[:end]
                wire.read_due_s = math.inf
                limit.mark_busy(self)
                return self._context.read_head(data)
            if len(buffer) >= config.head_bytes_max:
                raise _too_long(buffer, config.head_bytes_max)
            check_start(buffer)
            wire.read_due_s = wire.began_s() + config.head_s
            self._within = bool(buffer)
            limit.mark_idle(self)  # clients with slow heads must not keep others out
            more = await wire.pipe.receive_some(HEAD_READ_BYTES)
            if not more:
                if buffer:
                    raise Refused(400, "the request ended before its head was whole")
                return None
            buffer += more

    def _is_next(self) -> bool:
        """Mark the connection as idle until its next request. Returns False if no further request is accepted, because
        the listener is closing."""
        if self._wire.closing:
            return False
        self._within = False
        self._wire.read_due_s = AT_LOOK
        self._context.limit.mark_idle(self)
        return True

    async def _answer(self, head: Head) -> bool:
        """Let the application answer a request. Returns whether another request may follow on this connection."""
        exchange = self._asked = Exchange(self._wire, head)
        failed: Exception | None = None
        try:
            answer = await self._context.app(exchange)
            if answer is not None:
                await exchange.answer(answer)
        except Exception as error:  # noqa: BLE001 - an error of the application ends one answer, not the server
            failed = error
        return self._settle(exchange, failed)

    def _settle(self, exchange: Exchange, failed: Exception | None) -> bool:
        fault = ""
        if failed is not None:
            fault = log_internal_error(self._context.log, "http.app_failed", failed, peer=self.client[0])
        if exchange.complete:
            self._linger = not exchange.gone
            return not exchange.closes and not exchange.gone and failed is None
        if exchange.sent:
            log_event(self._context.log.warning, "http.answer_cut", peer=self.client[0], id=fault, why=exchange.stopped)
        elif exchange.refusal is not None:
            self._send_last(exchange.refusal.status, exchange.refusal.detail)
        elif exchange.cut:
            self._send_last(400, "the body ended before it was whole; nothing was taken")
        elif not exchange.gone and not exchange.left:
            if failed is None:
                fault = log_internal_error(self._context.log, "http.unanswered", RuntimeError(), peer=self.client[0])
            self._send_last(500, f"an internal error; the log tells more under the id {fault}", fault=fault)
        return False

    def _prepare_408(self) -> None:
        """Make a response 408 the last response, if a request had begun but not arrived completely when the connection
        was ended for slowness, and no other response was begun."""
        exchange = self._asked
        if exchange is not None and (exchange.complete or exchange.sent or exchange.whole):
            return
        if self._within and not self._bye:
            self._send_last(408, TOO_SLOW)

    def _send_last(self, status: int, detail: str, *, fault: str = "", retry_after_s: int | None = None) -> None:
        """Store the last response of the connection, which `_end` sends."""
        answer = problem_answer(status, detail, fault=fault, retry_after_s=retry_after_s)
        whole = render_whole(answer, self._context.dates.line())
        mute = self._asked is not None and self._asked.head.method == "HEAD"
        self._bye = whole[: whole.index(b"\r\n\r\n") + 4] if mute else whole

    async def _end(self) -> bool:
        """Send the last response, then read and discard data until the client closes, or `linger_s` is over. Returns
        whether the response was sent completely.

        If the client's data arrived after closing, the kernel would drop response data that it has not delivered yet.
        """
        exchange, config = self._asked, self._context.config
        self._wire.read_due_s = self._wire.write_due_s = math.inf
        if exchange is not None and exchange.sent and not exchange.complete:
            return False
        if not self._bye and not self._linger:
            return True
        with trio.move_on_after(config.linger_s) as self._scope:
            if self._bye:
                await self._wire.pipe.send_all(self._bye)
            await self._wire.pipe.finish()
            self._context.limit.mark_idle(self)
            left = config.linger_bytes
            while left > 0 and (data := await self._wire.pipe.receive_some(READ_BYTES)):
                left -= len(data)
        return True

    def _let_go(self, whole: bool) -> None:
        try:
            self._context.limit.leave(self)
            if whole:
                self._wire.pipe.close()
            else:
                self._wire.pipe.abort()
        except Exception as error:  # noqa: BLE001 - an error while closing must not end other connections
            log_internal_error(self._context.log, "http.not_closed", error, peer=self.client[0])


def _too_long(buffer: bytearray, bytes_max: int) -> Refused:
    if b"\n" not in buffer[:LINE_MAX]:
        return Refused(414, f"the first line has more than {LINE_MAX} bytes")
    return Refused(431, f"the head of the request has more than {bytes_max} bytes")


def problem_answer(status: int, detail: str, *, fault: str = "", retry_after_s: int | None = None) -> Response:
    """Return problem details (RFC 9457) as a response that closes the connection."""
    fields: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if fault:
        fields["id"] = fault
    headers = {"connection": "close"}
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    return Response(status, json.dumps(fields).encode(), media.PROBLEM, headers)


def render_whole(answer: Response, date: bytes) -> bytes:
    """Return a complete response as bytes, for connections on which no request was read. `date`: the line of the Date
    header."""
    fields = [*answer.fields(), ("content-length", str(len(answer.body)))]
    lines = header_lines("".join(f"{name}: {value}\r\n" for name, value in fields), len(fields))
    return render_head(answer.status, lines, date, b"") + answer.body
