"""Listening TCP sockets, and how they are named."""

import socket

from jqd.words.errors import ConfigError

BACKLOG = 2_048  # connections the kernel holds for us while one loop turn is busy
USER_TIMEOUT_MS = 20_000  # a peer that vanished is noticed after this, not after the kernel's quarter of an hour
PORT_MAX = 65_535


def bind(address: str) -> socket.socket:
    """A listening TCP socket at `host:port` (port 0: any free one).

    Raises ConfigError naming the address and what to do when it is taken or cannot be had.
    """
    host, _, port_text = address.rpartition(":")
    if not host or not port_text.isdecimal() or int(port_text) > PORT_MAX:
        raise ConfigError(f"--bind wants host:port, got {address!r}; for example 127.0.0.1:7420")
    port = int(port_text)
    try:
        return listen(host, port)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror or error}. If another program has port {port}, choose "
            f"another with --bind {host}:{port + 1 if port < PORT_MAX else 7420} (or JQD_HTTP__BIND), or :0 for any"
        ) from error


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket that never blocks; IPv6 may stand in brackets. Raises OSError."""
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit both.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((bare, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
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
