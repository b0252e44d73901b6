"""Accepts connections, ends slow ones, and shuts down in stages:

stopped → accept no more → close idle connections → wait up to `grace_s` for requests under way → end the others
"""

import errno
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from jqd.domain.beat import rest
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.log import get_logger
from jqd.http.address import BACKLOG
from jqd.http.config import ListenerConfig
from jqd.http.connection import Connection, ServerContext
from jqd.http.exchange import App
from jqd.http.fairness import Urgent, Whose, by_address, not_urgent
from jqd.http.internal_error import log_event, log_internal_error
from jqd.http.tls import Certificate, TlsTransport
from jqd.http.transport import SocketTransport

LOOK_S = 0.5  # between checks of all connections: one may end so much later than its deadline
LOOKED = 64  # connections checked before other tasks have their turn: half a millisecond if all are busy
FILES_S = 5.0  # between checks whether the files of a certificate were replaced
PAUSE_S = 0.1  # after a failed accept: meanwhile other connections may close
STRAIGHT_MAX = 8  # connections accepted before other tasks have their turn: some tenths of a millisecond
TURNED_AWAY_MAX = 64  # connections that are answered with 503 at a time; more are closed without an answer
QUIET_S = 60.0  # the same event is logged at most once in so long


async def serve_http(
    app: App,
    listener: socket.socket,
    *,
    stopped: Callable[[], Awaitable[None]],
    config: ListenerConfig | None = None,
    log: Any = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `listener` until `stopped` returns, then close it. Raises ConfigError for a bad certificate."""
    await Listener(app, listener, config, log).serve(stopped, task_status=task_status)


class Listener:
    """A listening socket and its connections."""

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        config: ListenerConfig | None = None,
        log: Any = None,
        *,
        whose: Whose = by_address,
        urgent: Urgent = not_urgent,
        clock: Clock | None = None,
    ) -> None:
        """`whose`: a function that returns the owner of a request. `urgent`: a function that returns how urgent a
        request is. `clock`: for the certificate's expiry. Raises ConfigError for a bad certificate."""
        self.config = config = config or ListenerConfig()
        self._log = log or get_logger("http")
        host, port = listener.getsockname()[:2]
        self._context = ServerContext(app, config, self._log, (host, port), whose=whose, urgent=urgent)
        self._context.warn = self._log_once
        self.certificate = Certificate(config, self._log, clock or SystemClock())
        self._listener = listener
        self._turned_away = 0
        self._logged: dict[str, tuple[float, int]] = {}
        self._empty = trio.Event()

    async def serve(
        self,
        stopped: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen and serve until `stopped` returns; then close the listening socket, and shut down."""
        with self._listener:
            self._listener.listen(BACKLOG)  # a shared socket begins to listen here; any other socket does already
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.watch)
                if self.config.files:
                    nursery.start_soon(self._follow_files)
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(self.accept, nursery)
                    task_status.started()
                    await stopped()
                    accepting.cancel_scope.cancel()
                trio.lowlevel.notify_closing(self._listener)
                self._listener.close()
                await self.close()
                nursery.cancel_scope.cancel()

    def change(self, config: ListenerConfig) -> None:
        """Use other limits from the next request on. Read the certificate's files again, for new connections.

        If fewer connections are allowed than are open, none is closed for that. Raises ConfigError for a bad
        certificate, before anything changes.
        """
        self.certificate.change(config)
        self.config = config
        self._context.change(config)

    async def _follow_files(self) -> None:
        while True:
            await rest(FILES_S)
            self.certificate.look()

    async def accept(self, nursery: trio.Nursery) -> None:
        """Accept connections until cancelled. Errors of the operating system are logged."""
        straight = 0
        while True:
            try:
                sock, client = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                straight = 0
                await self._wait_readable()
                continue
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # then the client had left before it was accepted
                    self._log_once("http.cannot_accept", error=errno.errorcode.get(error.errno or 0, "?"))
                    await trio.sleep(PAUSE_S)
                await trio.lowlevel.checkpoint()
                continue
            self._admit(nursery, sock, client[:2])
            straight += 1
            if straight >= STRAIGHT_MAX:
                straight = 0
                await trio.lowlevel.checkpoint()

    async def watch(self) -> None:
        """Check all connections every LOOK_S by `Connection.look`, until cancelled."""
        while True:
            await rest(LOOK_S)
            now_s = trio.current_time()
            for place, connection in enumerate(tuple(self._context.limit.present)):
                connection.look(now_s)
                if place % LOOKED == LOOKED - 1:
                    await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Close idle connections, and wait up to `grace_s` for requests under way."""
        limit = self._context.limit
        for connection in limit.present:
            connection.close_soon()
        for connection in limit.idle():
            connection.give_way()
        with trio.move_on_after(self.config.grace_s):
            while limit.present:
                self._empty = trio.Event()
                await self._empty.wait()

    async def _wait_readable(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._listener)
        except OSError as error:  # the kernel is out of memory
            self._log_once("http.cannot_wait", error=errno.errorcode.get(error.errno or 0, "?"))
            await trio.sleep(PAUSE_S)

    def _admit(self, nursery: trio.Nursery, sock: socket.socket, client: tuple[str, int]) -> None:
        limit, connection = self._context.limit, None
        try:
            sock.setblocking(False)
            pipe, tls = SocketTransport(sock), self.certificate.context
            connection = Connection(self._context, TlsTransport(pipe, tls) if tls else pipe, client)
            if limit.join(connection):
                nursery.start_soon(self._run, connection)
                return
            self._log_once("http.full", connections=len(limit.present), peer=client[0])
            if self._turned_away < TURNED_AWAY_MAX:
                self._turned_away += 1
                nursery.start_soon(self._turn_away, connection)
                return
        except Exception as error:  # noqa: BLE001 - a connection that cannot be begun must not end the listener
            log_internal_error(self._log, "http.not_admitted", error, peer=client[0])
            if connection is not None:
                limit.leave(connection)
        try:
            sock.close()
        except OSError as error:
            self._log_once("http.not_closed", error=errno.errorcode.get(error.errno or 0, "?"))

    async def _run(self, connection: Connection) -> None:
        await connection.run()
        self._empty.set()

    async def _turn_away(self, connection: Connection) -> None:
        try:
            await connection.turn_away("too many connections are open here; use fewer, or keep them open")
        finally:
            self._turned_away -= 1

    def _log_once(self, event: str, **fields: object) -> None:
        """Log an event as a warning, unless an event with the same name was logged within QUIET_S."""
        now_s = trio.current_time()
        logged_s, times = self._logged.get(event, (-math.inf, 0))
        if now_s - logged_s < QUIET_S:
            self._logged[event] = (logged_s, times + 1)
            return
        self._logged[event] = (now_s, 0)
        log_event(self._log.warning, event, times=times + 1, **fields)
