"""The edge behind the real HTTP server on loopback: what clients do to sockets."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
import trio

from jqd.api import ApiConfig
from jqd.domain.job import State
from jqd.http import ListenerConfig, bind, serve_http
from tests.api.edge import Edge

ANSWER_S = 10.0  # far above what any answer here takes
REQUEST_S = 0.4  # the edge's deadline for a whole request, in these tests
BODY: bytes = msgspec.msgpack.encode([{"name": "mail", "argument": "x" * 30}])


class Client:
    """A raw connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._left = b""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def read_answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer; (0, b"") when the connection ended without one."""
        with trio.fail_after(ANSWER_S):
            while b"\r\n\r\n" not in self._left:
                if not await self._more():
                    return 0, b""
            head, _, self._left = self._left.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
            while len(self._left) < length and await self._more():
                continue
            body, self._left = self._left[:length], self._left[length:]
            return int(lines[0].split()[1]), body

    async def read_end(self) -> bytes:
        """All that comes until the server closes."""
        with trio.fail_after(ANSWER_S):
            while await self._more():
                continue
            return self._left

    async def finish(self) -> None:
        """Say that nothing more will be sent."""
        await self._stream.send_eof()

    async def reset(self) -> None:
        """Break the connection off."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()

    async def close(self) -> None:
        await self._stream.aclose()

    async def _more(self) -> bool:
        try:
            chunk = await self._stream.receive_some(65_536)
        except trio.BrokenResourceError:
            return False
        self._left += chunk
        return bool(chunk)


@asynccontextmanager
async def serving(edge: Edge) -> AsyncIterator[int]:
    """Serve the edge; every connection is over when the block is."""
    listener = bind("127.0.0.1:0")
    port = listener.getsockname()[1]
    stopped = trio.Event()
    config = ListenerConfig(request_s=edge.config.request_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_http, edge.api, listener, stopped=stopped.wait, config=config))
        yield port
        stopped.set()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    client = Client(stream)
    try:
        yield client
    finally:
        await client.close()


def head(length: int | None, *more: str) -> bytes:
    lines = ["POST /v1/jobs HTTP/1.1", "Host: localhost", "Content-Type: application/msgpack", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


@pytest.fixture
def edge() -> Edge:
    return Edge(ApiConfig(request_s=REQUEST_S))


async def test_pushes_on_one_connection_and_pipelined(edge):
    async with serving(edge) as port, connected(port) as client:
        for _ in range(3):
            await client.send(head(len(BODY)) + BODY)
            status, body = await client.read_answer()
            assert status == 201
            assert msgspec.msgpack.decode(body)["job_ids"] == [edge.journal.jobs()[-1].id]
        await client.send((head(len(BODY)) + BODY) * 2)
        assert [(await client.read_answer())[0] for _ in range(2)] == [201, 201]
        await client.send(head(None, "Transfer-Encoding: chunked") + chunked(BODY, 7) + b"0\r\n\r\n")
        assert (await client.read_answer())[0] == 201
        await client.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.read_answer())[0] == 200
    assert len(edge.journal.jobs()) == 6


@pytest.mark.parametrize("how", ["finish", "reset", "close"])
async def test_a_body_cut_anywhere_is_never_journaled(edge, how):
    async with serving(edge) as port:
        for cut in range(0, len(BODY), 3):
            async with connected(port) as client:
                await client.send(head(len(BODY)) + BODY[:cut])
                await getattr(client, how)()
                if how == "finish":
                    status, _ = await client.read_answer()
                    assert not 200 <= status < 300
    assert edge.journal.frames == []


@pytest.mark.parametrize("how", ["finish", "reset"])
async def test_a_chunked_body_without_its_end_neither(edge, how):
    whole = chunked(BODY, 7) + b"0\r\n\r\n"
    async with serving(edge) as port:
        for cut in range(0, len(whole), 4):
            async with connected(port) as client:
                await client.send(head(None, "Transfer-Encoding: chunked") + whole[:cut])
                await getattr(client, how)()
                if how == "finish":
                    status, _ = await client.read_answer()
                    assert not 200 <= status < 300
    assert edge.journal.frames == []


@pytest.mark.parametrize("body", [b"", b"\x91"])
async def test_a_stalled_body_is_answered_and_closed(edge, body):
    async with serving(edge) as port, connected(port) as client:
        await client.send(head(len(BODY)) + body)
        status, _ = await client.read_answer()
        assert status == 408
        assert await client.read_end() == b""
    assert edge.journal.frames == []


async def test_a_dripping_body_too(edge):
    async with serving(edge) as port, connected(port) as client, trio.open_nursery() as nursery:

        async def drip() -> None:
            for n in range(len(BODY)):
                try:
                    await client.send(BODY[n : n + 1])
                except trio.BrokenResourceError:
                    return
                await trio.sleep(REQUEST_S / 8)

        await client.send(head(len(BODY)))
        nursery.start_soon(drip)
        assert (await client.read_answer())[0] == 408
        nursery.cancel_scope.cancel()
    assert edge.journal.frames == []


@pytest.mark.parametrize("length", [(16 << 20) + 1, 10**15, 10**30])
async def test_too_large_is_said_before_reading(edge, length):
    async with serving(edge) as port, connected(port) as client:
        await client.send(head(length))
        assert (await client.read_answer())[0] in (400, 413)
        assert await client.read_end() == b""
    assert edge.journal.frames == []


async def test_a_length_shorter_than_the_body(edge):
    """What follows is read as the next request, and is none."""
    async with serving(edge) as port, connected(port) as client:
        await client.send(head(len(BODY) - 5) + BODY)
        status, _ = await client.read_answer()
        assert status == 400
        await client.finish()
        await client.read_end()
    assert edge.journal.frames == []


SECOND = head(len(BODY)) + BODY
ODD = {
    "two lengths": head(len(BODY), f"Content-Length: {len(BODY) - 1}") + BODY,
    "length and chunks": head(len(BODY), "Transfer-Encoding: chunked") + b"0\r\n\r\n" + SECOND,
    "negative length": head(-5) + BODY,
    "length in words": head(None, "Content-Length: ten") + BODY,
    "bad chunk": head(None, "Transfer-Encoding: chunked") + b"zz\r\n" + BODY,
    "other encoding": head(None, "Transfer-Encoding: gzip, chunked") + chunked(BODY, 9) + b"0\r\n\r\n",
    "no host": head(len(BODY)).replace(b"Host: localhost\r\n", b"") + BODY,
    "folded header": head(len(BODY), "X-A: 1\r\n Content-Length: 3") + BODY,
    "space in name": head(len(BODY), "Content-Length : 3") + BODY,
    "NUL": head(len(BODY), "X-A: \x00") + BODY,
    "no HTTP": b"\x00\x01\x02garbage\r\n\r\n" + BODY,
    "huge header": head(len(BODY), "X-A: " + "a" * 40_000) + BODY,
    "many headers": head(len(BODY), *(f"X-{n}: a" for n in range(150))) + BODY,
    "gzip": head(len(BODY), "Content-Encoding: gzip") + BODY,
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_requests(edge, name):
    """Never an error of ours, never two requests out of one."""
    async with serving(edge) as port, connected(port) as client:
        try:
            await client.send(ODD[name])
            await client.finish()
        except trio.BrokenResourceError:
            pass  # it was refused before we had said it all
        answers = await client.read_end()
        assert answers.startswith(b"HTTP/1.1 501 " if name == "other encoding" else b"HTTP/1.1 4")
        assert b"content-type: application/" in answers
        assert answers.count(b"HTTP/1.1 2") <= 1
        await _still_serves(port)
    accepted = len(edge.journal.frames)
    assert accepted == answers.count(b"HTTP/1.1 201")
    assert accepted == 0


async def test_who_leaves_before_the_answer_has_pushed(edge):
    async with serving(edge) as port:
        async with connected(port) as client:
            await client.send(head(len(BODY)) + BODY)
            await edge.journal.waiting.wait()
            await client.reset()
        await _still_serves(port)
    assert len(edge.journal.jobs()) == 1


async def test_who_sends_no_more_is_answered_all_the_same(edge):
    """Also whoever waits for a job to end: as one who has gone looks alike, nothing is waited for any longer."""
    job_id = edge.add(State.RUNNING)
    targets = ["/v1/stats", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}?wait=60", "/v1/nowhere"]
    async with serving(edge) as port:
        for target, expected in zip(targets, (200, 200, 200, 404), strict=True):
            async with connected(port) as client:
                await client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                await client.finish()
                status, body = await client.read_answer()
                assert status == expected, target
                assert job_id not in target or b'"running"' in body
        async with connected(port) as client:
            await client.send(f"GET /job/{job_id}/polling HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await client.finish()
            assert (await client.read_answer())[0] == 408


async def test_who_leaves_a_long_poll_is_forgotten(edge):
    job_id = edge.add(State.RUNNING)
    async with serving(edge) as port:
        async with connected(port) as client:
            await client.send(f"GET /v1/jobs/{job_id}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await edge.store.looked.wait()
        with trio.fail_after(ANSWER_S):
            while job_id in edge.services.waiters.job_ids:
                await trio.sleep(0.01)


async def _still_serves(port: int) -> None:
    async with connected(port) as client:
        await client.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.read_answer())[0] == 200
