"""The listening socket and the HTTP server on it: hypercorn on trio, with its defaults mended.

What was measured of hypercorn's defaults is in design.md 11: it closes busy connections after 1,000 requests, waits for
idle ones only 5 s, and a client that does not read its answer can hold its shutdown. The last is why the daemon has a
hard deadline of its own.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve

from jqd.errors import ConfigError

BACKLOG = 2_048  # connections the kernel holds for us while one loop turn is busy
KEEP_ALIVE_S = 75.0  # above the idle time of common load balancers (60 s), so that they close first
REQUESTS_PER_CONNECTION = 1_000_000_000  # no reason to close a good connection
GRACE_S = 2.0  # for answers under way when the listener closes
USER_TIMEOUT_MS = 20_000  # a peer that vanished is noticed after this, not after the kernel's quarter of an hour


def bind(address: str) -> socket.socket:
    """A listening TCP socket at `host:port` (port 0: any free one).

    Raises ConfigError naming the address and what to do when it is taken or cannot be had.
    """
    host, _, port_text = address.rpartition(":")
    if not host or not port_text.isdecimal() or int(port_text) > 65_535:
        raise ConfigError(f"--bind wants host:port, got {address!r}; for example 127.0.0.1:7420")
    port = int(port_text)
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        listener.bind((bare, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror or error}. If another program has port {port}, choose "
            f"another with --bind {host}:{port + 1 if port < 65_535 else 7420} (or JQD_HTTP__BIND), or :0 for any"
        ) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """What `bind` takes to listen there again."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(listener: socket.socket) -> str:
    """How a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_http(
    app: Any,
    listener: socket.socket,
    *,
    stopped: Callable[..., Awaitable[None]],
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `listener` until `stopped` returns, then close what is idle and give answers GRACE_S."""
    config = HypercornConfig()
    # hypercorn takes the descriptor over and closes it.
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = REQUESTS_PER_CONNECTION
    config.graceful_timeout = GRACE_S
    config.shutdown_timeout = GRACE_S
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = None
    config.backlog = BACKLOG
    await serve(app, config, shutdown_trigger=stopped, task_status=task_status, mode="asgi")
