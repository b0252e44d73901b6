"""The connections to all workers: one pool for all partitions, and the count of those that are taken.

Connections are a share of the process's open files (`jqd/words/descriptors.py`). When all are taken nothing more is
claimed. A claimed job that finds none in time goes back untried, and its worker is not backed off for it.
"""

import errno
import functools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpcore2
import trio

from jqd.runner.carry.network import Backend
from jqd.runner.config import RunnerConfig
from jqd.runner.reach import Reach

KEPT = 8  # an eighth of all: one endpoint that hangs leaves so many to the others
CLOSE_S = 1.0  # to close idle connections at the end
PAUSE_S = 0.5  # nothing is claimed for so long after no connection could be had: time for some to end
# What the kernel says when this process or machine has no more sockets: no worker is to blame.
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Connections:
    """How many requests are under way, of all runners together and by endpoint, and how many may be."""

    def __init__(self, most: int, mono_s: Callable[[], float], freed: Callable[[], None]) -> None:
        """`freed`: called when one is free again after none was."""
        self.most = most
        self.taken = 0
        self._taken_by: Counter[str] = Counter()  # host and port of a worker
        self._mono_s, self._freed = mono_s, freed
        self._pause_until_s = float("-inf")

    @property
    def free(self) -> int:
        """How many more requests may begin now."""
        return 0 if self._mono_s() < self._pause_until_s else max(0, self.most - self.taken)

    def free_for(self, endpoint: str, workers: int) -> int:
        """How many more requests may begin now to this host and port, where one of so many workers is."""
        share = max(1, self.most // workers) - self._taken_by[endpoint]
        return max(0, min(self.free, max(share, self.free - self.most // KEPT)))

    @contextmanager
    def one(self, endpoint: str) -> Iterator[None]:
        """A request is under way, or waits for its connection, as the parts of a batch that was cut may have to."""
        self.taken += 1
        self._taken_by[endpoint] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._taken_by[endpoint] -= 1
            if not self._taken_by[endpoint]:
                del self._taken_by[endpoint]
            if self.taken >= self.most - self.most // KEPT - 1:
                self._freed()

    def pause(self) -> None:
        """No connection could be had, although one was counted as free."""
        self._pause_until_s = self._mono_s() + PAUSE_S


def make_pool(config: RunnerConfig, connections_max: int) -> httpcore2.AsyncConnectionPool:
    """A pool whose connections notice within about a minute that a peer vanished, however long its jobs may take."""
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    ]
    return httpcore2.AsyncConnectionPool(
        max_connections=connections_max,
        max_keepalive_connections=connections_max // 2,
        keepalive_expiry=config.keepalive_s,
        ssl_context=_tls_context(),
        socket_options=options,
        network_backend=Backend(Reach(config.worker_networks)),
    )


async def close_pool(pool: httpcore2.AsyncConnectionPool) -> None:
    """Close it, within CLOSE_S."""
    with trio.move_on_after(CLOSE_S, shield=True):
        await pool.aclose()


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Made once: reading the trusted roots takes tens of milliseconds."""
    return httpcore2.default_ssl_context()
