"""Single jobs over HTTP: 1 to 256 connections, each pushing the next when the last is acknowledged.

Beside them, in the same run, bare echoes of the same request: behind our door, and behind hypercorn's own server.
"""

import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bench.processes import QUIET, daemon
from bench.result import Result, percentile

CONNECTIONS = (1, 16, 64, 256)
MEASURED = 64  # connections of the echoes, and of the ratios
LENGTH = re.compile(rb"(?i)\ncontent-length: (\d+)")
WARM = 200  # requests that do not count
BODY: bytes = msgspec.msgpack.encode({"name": "noop", "argument": "x" * 200})
REQUEST = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
    b"Accept: application/msgpack\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def run(jobs: int) -> Result:
    """Jobs acknowledged a second, how long one takes, by connections; and how many times as many as of the echoes."""
    figures: dict[str, float] = {}
    wrong = 0
    echoes: dict[str, float] = {}
    for name in ("lean", "hypercorn"):
        with _echo(name) as url:
            push(url, 1, WARM)
            echoes[name], _, bad = push(url, MEASURED, max(1, jobs // 8 // MEASURED))
            figures[f"echo_{name}_per_s"] = echoes[name]
            wrong += bad
    with daemon({}) as url:
        push(url, 1, WARM)
        for connections in CONNECTIONS:
            each = max(1, jobs // len(CONNECTIONS) // connections)
            per_s, latencies_ms, bad = push(url, connections, each)
            wrong += bad
            figures[f"lean_{connections}_per_s"] = per_s
            figures[f"lean_{connections}_p50_ms"] = percentile(latencies_ms, 0.5)
            figures[f"lean_{connections}_p99_ms"] = percentile(latencies_ms, 0.99)
    for name, echo_per_s in echoes.items():
        figures[f"lean_{MEASURED}_over_echo_{name}"] = figures[f"lean_{MEASURED}_per_s"] / echo_per_s
    return Result("enqueue-one", figures, ok=not wrong)


@contextmanager
def _echo(name: str) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.echo", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=QUIET,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    return bool(end and length) and len(body) >= int(length[1] if length else 0)


def push(url: str, connections: int, each: int) -> tuple[float, list[float], int]:
    """Requests a second, the latency of each, and how many answers were not what they should be."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    latencies_ms: list[float] = []
    wrong = 0
    waiting: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            sock = socket.create_connection((host, int(port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ, [each, 0.0, b""])
            waiting.append(sock)
        began, left = time.perf_counter(), connections
        for sock in waiting:
            selector.get_key(sock).data[1] = time.perf_counter()
            sock.sendall(REQUEST)
        while left:
            for key, _ in selector.select(30):
                assert isinstance(key.fileobj, socket.socket)
                state = key.data
                piece = key.fileobj.recv(65_536)
                answer = state[2] = state[2] + piece
                if piece and not _whole(answer):
                    continue
                wrong += not answer.startswith(b"HTTP/1.1 201")
                now = time.perf_counter()
                latencies_ms.append((now - state[1]) * 1e3)
                state[0] -= 1
                state[1:] = now, b""
                if state[0] and piece:
                    key.fileobj.sendall(REQUEST)
                else:
                    left -= 1
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return len(latencies_ms) / (time.perf_counter() - began), latencies_ms, wrong
