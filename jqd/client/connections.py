"""Connections to daemons that are kept for the next request; the last used is used first."""

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

CONNECTIONS_MAX = 32  # of one client, but for waits: they have one each, and keep no push from being sent
IDLE_S_MAX = 50.0  # a daemon closes after 75 s, common load balancers after 60 s: we are sooner, and no request is lost


class Connections:
    """A `Transport`, for one process: a child of a fork needs its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._tls: ssl.SSLContext | None = None
        if any(url.startswith("https:") for url in urls):
            from jqd.client.trust import trusted  # here, as it is slow, and few need it

            self._tls = trusted()
            self._tls.set_alpn_protocols(["http/1.1"])
        self._clock = SystemClock()
        # A stream that nobody holds ends wherever Python collects it, also in a thread that has the lock: between any
        # two steps its connection may leave the busy ones, and the one that was idle for the longest may be closed.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._idle: list[Connection] = []  # the longest first
        self._busy: set[Connection] = set()
        self._under_way = 0  # requests, but for waits
        self._turns: deque[threading.Event] = deque()  # of those above the limit, in the order in which they came
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
        finally:  # after an interrupt as after an error: what is left of the answer is nobody's
            if not streamed:
                self._end(connection, waits=request.waits)
        return response

    def close(self) -> None:
        """Break what is under way, and let nothing begin."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in list(self._busy):
                connection.shut_down()
            for turn in self._turns:
                turn.set()
            self._turns.clear()
        for connection in idle:
            connection.close()

    def _streamed(self, connection: Connection, pieces: Iterator[bytes], *, waits: bool) -> Iterator[bytes]:
        try:
            yield from pieces
        finally:
            if os.getpid() == self._process:  # not where a child of a fork collects what its parent reads
                self._end(connection, waits=waits)

    def _begin(self, wait_s: float) -> None:
        """Wait until fewer than the limit are under way. Raises CrowdedError."""
        with self._lock:
            if self._under_way < CONNECTIONS_MAX:
                self._under_way += 1
                return
            self._turns.append(turn := threading.Event())
        is_handed = False
        try:
            is_handed = turn.wait(wait_s)
        finally:
            if not is_handed:
                with self._lock:
                    if turn in self._turns:
                        self._turns.remove(turn)
                    else:  # it was handed over just now
                        self._pass_on()
        if not is_handed:
            raise CrowdedError(f"none of its {CONNECTIONS_MAX} connections was free within {wait_s:g} s")

    def _pass_on(self) -> None:
        """Let the next begin: by name, for whoever has just ended is always sooner than a thread that must wake."""
        if self._turns:
            self._turns.popleft().set()
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
        """Return whether it was idle until now."""
        try:
            self._idle.remove(connection)
        except ValueError:
            return False
        return True

    def _is_open(self, connection: Connection) -> bool:
        return self._clock.boot_s() - connection.free_since_s <= IDLE_S_MAX and connection.is_quiet()

    def _end(self, connection: Connection | None, *, waits: bool) -> None:
        now_s = self._clock.boot_s()  # a laptop that slept has lost its connections
        with self._lock:
            if not waits:
                self._pass_on()
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
