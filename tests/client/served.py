"""Servers that say just what a test has them say, for connections of a client."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from jqd.client.connections import Connections
from jqd.client.transport import Request

PATIENCE_S = 30.0
SOON_S = 0.05  # for what does not come at all
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Act = Callable[[socket.socket], None]


class Server:
    """Does one act on each connection that comes, and ends it then."""

    def __init__(self, *acts: Act) -> None:
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._acts = list(acts)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for act in self._acts:
            with suppress(OSError):
                taken, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=(act, taken), daemon=True).start()

    def _serve(self, act: Act, taken: socket.socket) -> None:
        with taken, suppress(OSError):
            taken.settimeout(PATIENCE_S)
            act(taken)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # it may wait for one more
        self._listener.close()


def read(taken: socket.socket) -> bytes:
    """One request whose body is announced, or has none."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := taken.recv(1 << 16)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        body += taken.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def saying(*answers: bytes) -> Act:
    def act(taken: socket.socket) -> None:
        for answer in answers:
            if not read(taken):
                return
            taken.sendall(answer)

    return act


def held(taken: socket.socket) -> None:
    """Read, say nothing, and hold the connection until the client leaves it."""
    read(taken)
    taken.recv(1)


def unread(taken: socket.socket) -> None:
    threading.Event().wait(PATIENCE_S)


def reset(taken: socket.socket) -> None:
    read(taken)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def opened() -> Iterator[Connections]:
    connections = Connections(["http://127.0.0.1"])
    yield connections
    connections.close()


@contextmanager
def serving(*acts: Act) -> Iterator[Server]:
    server = Server(*acts)
    yield server
    server.close()


def asked(url: str, method: str = "GET", body: bytes | None = None, read_s: float = PATIENCE_S, **how: Any) -> Request:
    return Request(method, url, "/v1/x", {"accept": "a/b"}, body, how.pop("connect_s", PATIENCE_S), read_s, **how)
