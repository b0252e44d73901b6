"""Opens listening TCP sockets, and says by which addresses and URLs they are reached."""

import socket

from jqd.domain.address import PORT_MAX, WILDCARDS, Address, parse
from jqd.domain.errors import ConfigError

BACKLOG = 2_048  # connections that wait in the kernel while the event loop is busy
USER_TIMEOUT_MS = 20_000  # a vanished peer is noticed after so long, not after the kernel's quarter of an hour


def bind(address: str, *, shared: bool = False) -> socket.socket:
    """Return a listening TCP socket bound to `host:port` (port 0: any free port).

    `shared`: whether several processes of the same user may bind sockets to this address; the kernel distributes the
    connections among them. A shared socket does not listen yet. Raises ConfigError if the address is taken or
    unavailable.
    """
    try:
        at = parse(address)
    except ValueError as error:
        raise ConfigError(f"--bind: {error}") from error
    another = at._replace(port=at.port + 1 if at.port < PORT_MAX else 7420)
    try:
        return listen(*at, shared=shared)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror or error}. If another program has port {at.port}, choose "
            f"another with --bind {another} (or JQD_HTTP__BIND), or :0 for any"
        ) from error


def reserve(address: str) -> socket.socket:
    """Reserve a port for processes that will share it. Returns a socket that holds the port and takes no connections
    itself.

    Raises ConfigError if the port is taken, even by programs that would share it.
    """
    with bind(address) as alone:
        at = parse(address_of(alone))
    try:
        kept = listen(*at, shared=True)
    except OSError as error:
        raise ConfigError(f"cannot keep {at} for several processes: {error.strerror or error}") from error
    # With this option, any program could listen there before the processes do.
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return kept


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a non-blocking TCP socket bound to an address. It listens, unless it is shared. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Accepted sockets inherit both.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        if not shared:
            listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket in the form that `bind` takes."""
    return str(Address(*listener.getsockname()[:2]))


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL by which a client on this machine reaches a listening socket."""
    at = Address(*listener.getsockname()[:2])
    return f"{scheme}://{at._replace(host='127.0.0.1') if at.host in WILDCARDS else at}"
