"""The connections to all workers."""

import functools
import socket
import ssl

import httpcore2
import trio

from jqd.runner.config import RunnerConfig

CLOSE_S = 1.0  # to close idle connections at the end


def make_pool(config: RunnerConfig) -> httpcore2.AsyncConnectionPool:
    """A pool whose connections notice within about a minute that a peer vanished, however long its jobs may take."""
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    ]
    return httpcore2.AsyncConnectionPool(
        max_connections=config.connections_max,
        max_keepalive_connections=config.connections_max // 2,
        keepalive_expiry=config.keepalive_s,
        ssl_context=_tls_context(),
        socket_options=options,
    )


async def close_pool(pool: httpcore2.AsyncConnectionPool) -> None:
    """Close it, within CLOSE_S."""
    with trio.move_on_after(CLOSE_S, shield=True):
        await pool.aclose()


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Made once: reading the trusted roots takes tens of milliseconds."""
    return httpcore2.default_ssl_context()
