"""Pushes single jobs at a steady rate, whatever the answers: `python -m bench.pacer HOST:PORT NAME RATE JOBS`.

The argument of each job is the moment when it was due, by the monotonic clock of this machine. A push that had to wait
for a connection counts from then on.
"""

import selectors
import socket
import sys
import time

import msgspec

from bench.single import LENGTH

CONNECTIONS = 64  # more pushes than that under way are a daemon that does not keep up
STALL_S = 30.0  # without an answer: then it is given up


def request(name: str, due_s: float) -> bytes:
    """One push."""
    body = msgspec.msgpack.encode({"name": name, "argument": due_s})
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
        f"Accept: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def push(bind: str, name: str, rate: int, jobs: int) -> int:
    """Push so many jobs. Returns how many were not acknowledged."""
    host, _, port = bind.rpartition(":")
    refused, pushed, began_s = 0, 0, time.monotonic()
    with selectors.DefaultSelector() as selector:
        idle: list[selectors.SelectorKey] = []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((host, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            idle.append(selector.register(connection, selectors.EVENT_READ, bytearray()))
        while pushed < jobs or len(idle) < CONNECTIONS:
            now_s = time.monotonic()
            while idle and pushed < jobs and (due_s := began_s + pushed / rate) <= now_s:
                send(idle.pop(), request(name, due_s))
                pushed += 1
            wait_s = began_s + pushed / rate - now_s if idle and pushed < jobs else STALL_S
            ready = selector.select(max(0.0, wait_s))
            if not ready and wait_s == STALL_S:
                raise TimeoutError(f"{CONNECTIONS - len(idle)} pushes have no answer after {STALL_S:.0f} s")
            for key, _ in ready:
                if receive(key):
                    refused += not key.data.startswith(b"HTTP/1.1 201")
                    key.data.clear()
                    idle.append(key)
        for key in idle:
            socket_of(key).close()
    return refused


def socket_of(key: selectors.SelectorKey) -> socket.socket:
    """The connection of a key."""
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def send(key: selectors.SelectorKey, data: bytes) -> None:
    """Send a request, which fits the socket's buffer."""
    socket_of(key).sendall(data)


def receive(key: selectors.SelectorKey) -> bool:
    """Read what came. Returns whether the answer is whole."""
    piece = socket_of(key).recv(65_536)
    if not piece:
        raise ConnectionError("the daemon closed a connection")
    key.data.extend(piece)
    head, end, body = bytes(key.data).partition(b"\r\n\r\n")
    length = LENGTH.search(head) if end else None
    return length is not None and len(body) >= int(length[1])


if __name__ == "__main__":
    print(push(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])), flush=True)
