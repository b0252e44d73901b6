"""Keeps connections to daemons open for further requests. The next request uses the idle connection that was used
last."""

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jqd.client.http1 import Connection
from jqd.client.transport import CrowdedError, Request, Response, UnreachedError
from jqd.domain.clock import SystemClock

if TYPE_CHECKING:
    import ssl

CONNECTIONS_MAX = 32  # of one client. Long polls do not count, so that they delay no push
IDLE_S_MAX = 50.0  # daemons close after 75 s, common load balancers after 60 s: we close sooner, and lose no request


class Connections:
    """The `Transport` of one process, which keeps connections open. A forked child needs its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._tls: ssl.SSLContext | None = None
        if any(url.startswith("https:") for url in urls):
            from jqd.client.trust import trusted  # here, as it is slow, and few need it

            self._tls = trusted()
            self._tls.set_alpn_protocols(["http/1.1"])
        self._clock = SystemClock()
        # Reentrant: Python may garbage-collect a stream in a thread that holds the lock. So at any step under the lock
        # that stream's connection may leave `_busy`, and the one that was idle longest may be closed.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._idle: list[Connection] = []  # idle for the longest first
        self._busy: set[Connection] = set()
        self._under_way = 0  # requests, without long polls
        self._queued: deque[threading.Event] = deque()  # requests above the limit, oldest first
        self._closed = False

    def send(self, request: Request) -> Response:
        if not request.waits:
            self._begin(request.connect_s)
        connection, streamed = None, False
        try:
            connection = self._connected(request)
            response = connection.ask(request)
            if response.pieces is not None:
                streamed = True
                response.pieces = self._streamed(connection, response.pieces, waits=request.waits)
        finally:  # also after Ctrl-C: nobody reads the rest of the answer
            if not streamed:
                self._end(connection, waits=request.waits)
        return response

    def close(self) -> None:
        """Break all requests under way, and refuse new ones."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in list(self._busy):
                connection.shut_down()
            for slot in self._queued:
                slot.set()
            self._queued.clear()
        for connection in idle:
            connection.close()

    def _streamed(self, connection: Connection, pieces: Iterator[bytes], *, waits: bool) -> Iterator[bytes]:
        try:
            yield from pieces
        finally:
            if os.getpid() == self._process:  # not when a forked child garbage-collects its parent's stream
                self._end(connection, waits=waits)

    def _begin(self, wait_s: float) -> None:
        """Count one more request under way. If the limit is reached, wait before until another request has ended.
        Raises CrowdedError if none ends within `wait_s` seconds."""
        with self._lock:
            if self._under_way < CONNECTIONS_MAX:
                self._under_way += 1
                return
            slot = threading.Event()
            self._queued.append(slot)
        has_slot = False
        try:
            has_slot = slot.wait(wait_s)
        finally:
            if not has_slot:
                with self._lock:
                    if slot in self._queued:
                        self._queued.remove(slot)
                    else:  # it was given just now
                        self._free_slot()
        if not has_slot:
            raise CrowdedError(f"none of its {CONNECTIONS_MAX} connections was free within {wait_s:g} s")

    def _free_slot(self) -> None:
        """Hand the slot of a request that has ended to the request that has waited longest. If the slot were just set
        free, the thread of the ended request would always take it again, before another thread wakes."""
        if self._queued:
            self._queued.popleft().set()
        else:
            self._under_way -= 1

    def _connected(self, request: Request) -> Connection:
        while (connection := self._kept(request.url)) is not None and not self._is_open(connection):
            connection.close()
        connection = connection or Connection(request.url, self._tls, request.connect_s, self._clock)
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise UnreachedError("the client was closed")

    def _kept(self, url: str) -> Connection | None:
        with self._lock:
            for connection in self._idle[::-1]:
                if connection.url == url and self._take(connection):
                    return connection
        return None

    def _take(self, connection: Connection) -> bool:
        """Remove a connection from the idle ones. Returns False if it was not idle."""
        try:
            self._idle.remove(connection)
        except ValueError:
            return False
        return True

    def _is_open(self, connection: Connection) -> bool:
        return self._clock.boot_s() - connection.free_since_s <= IDLE_S_MAX and connection.is_quiet()

    def _end(self, connection: Connection | None, *, waits: bool) -> None:
        now_s = self._clock.boot_s()  # it counts time asleep: a laptop that slept has lost its connections
        with self._lock:
            if not waits:
                self._free_slot()
            if connection is not None:
                self._busy.discard(connection)
                if connection.is_free and not self._closed:
                    connection.free_since_s = now_s
                    self._idle.append(connection)
                    connection = None
            for oldest in self._idle[:1]:
                is_stale = len(self._idle) > CONNECTIONS_MAX or now_s - oldest.free_since_s > IDLE_S_MAX
                if is_stale and self._take(oldest):
                    oldest.close()
        if connection is not None:
            connection.close()
