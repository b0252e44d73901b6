"""What a connection to a worker promises, in plain TCP and in TLS alike, over real sockets."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
import trustme

from jqd.runner.protocols.protocol import Request
from jqd.runner.ssrf import AddressPolicy, SsrfGuard
from jqd.runner.transport import network
from jqd.runner.transport.http1 import LostError, Origin, Wire
from jqd.runner.transport.network import Network, UnreachedError
from jqd.runner.transport.pool import Pool

HOST = "127.0.0.1"
LARGE = b"x" * 6_000_000  # no socket takes in so much that nobody reads
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Peer:
    """The worker's end of a connection. It decides what goes out in one segment."""

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext | None) -> None:
        self.stream = stream
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_side=True) if context is not None else None

    async def read(self) -> bytes:
        """What comes next; empty at the end."""
        while True:
            if self.tls is not None:
                try:
                    return self.tls.read(65_536)
                except ssl.SSLWantReadError:
                    if self.outgoing.pending:
                        await self.stream.send_all(self.outgoing.read())
            if not (data := await self.stream.receive_some()) or self.tls is None:
                return bytes(data)
            self._incoming.write(data)

    async def request(self) -> bytes:
        """One whose body is `body`."""
        came = b""
        while not came.endswith(b"\r\n\r\nbody"):
            data = await self.read()
            assert data, f"it closed after {came!r}"
            came += data
        return came

    def record(self, data: bytes) -> bytes:
        """How it travels."""
        if self.tls is None:
            return data
        self.tls.write(data)
        return self.outgoing.read()

    async def say(self, *data: bytes) -> None:
        """Each a record of its own, all in one segment."""
        await self.stream.send_all(b"".join([self.record(each) for each in data]))


Serve = Callable[[Peer], Awaitable[None]]


class Lines:
    """Connections to a worker that does as the test says."""

    def __init__(self, newest: ssl.TLSVersion | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheme = "http" if newest is None else "https"
        self.pool = Pool(Network(SsrfGuard()), 8, keepalive_s=60.0)
        self.wires: set[Wire] = set()
        self.theirs: ssl.SSLContext | None = None
        if newest is not None:
            authority, ours = trustme.CA(), ssl.create_default_context()
            self.theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.configure_trust(ours)
            authority.issue_cert(HOST).configure_cert(self.theirs)
            self.theirs.maximum_version = newest
            monkeypatch.setattr(network, "tls_context", lambda: ours)

    @asynccontextmanager
    async def to(self, serve: Serve) -> AsyncIterator[None]:
        """While it serves each connection by that."""

        async def handle(stream: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError):  # the daemon closed it
                await serve(Peer(stream, self.theirs))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                (listener, *_) = await nursery.start(partial(trio.serve_tcp, host=HOST), handle, 0)
                self.port = listener.socket.getsockname()[1]
                yield
                for wire in self.wires:
                    wire.close()
                nursery.cancel_scope.cancel()

    async def connect(self) -> Wire:
        wire = await self.pool.take(Origin(self.scheme, HOST, self.port, AddressPolicy.LOOPBACK), 60.0)
        self.wires.add(wire)
        return wire

    async def ask(self, wire: Wire, body: bytes = b"body") -> bytes:
        """The body of the answer."""
        await wire.ask(Request("POST", f"{self.scheme}://{HOST}/", [], body))
        came = b""
        while piece := await wire.read():
            came += piece
        return came


@pytest.fixture(name="lines", params=[None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=str)
def _lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lines:
    return Lines(request.param, monkeypatch)


async def test_one_connection_has_one_request_after_the_other(lines: Lines) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer(b"first"))
        await peer.request()
        await peer.say(answer(LARGE[:10]).replace(b": 10", b": 1000010"), *[LARGE[:10_000]] * 100)
        await peer.read()

    async with lines.to(serve):
        wire = await lines.connect()
        assert await lines.ask(wire) == b"first"
        lines.pool.give(wire)
        assert await lines.connect() is wire
        assert await lines.ask(wire) == LARGE[:1_000_010]
        assert wire.is_quiet()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_what_came_with_an_answer_is_none_of_the_next_request(lines: Lines, is_cut: bool) -> None:
    connections = 0

    async def serve(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.request()
        whole, ghost = peer.record(answer(b"of %d" % connections)), peer.record(answer(b"ghost"))
        cut = len(ghost) // 2 if is_cut else len(ghost)
        await peer.stream.send_all(whole + ghost[:cut])
        if await peer.read():
            await peer.stream.send_all(ghost[cut:])
            await peer.read()

    async with lines.to(serve):
        for number in (b"of 1", b"of 2"):
            wire = await lines.connect()
            assert await lines.ask(wire) == number
            lines.pool.give(wire)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_connection_that_the_worker_closed_has_no_other_request(lines: Lines, is_told: bool) -> None:
    closed = trio.Event()

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer(b"last"))
        if is_told and peer.tls is not None:
            with pytest.raises(ssl.SSLWantReadError):
                peer.tls.unwrap()
            await peer.stream.send_all(peer.outgoing.read())
        await peer.stream.aclose()
        closed.set()

    async with lines.to(serve):
        wire = await lines.connect()
        assert await lines.ask(wire) == b"last"
        await closed.wait()
        assert not wire.is_quiet()


async def test_an_answer_before_the_request_was_read_to_its_end_counts(lines: Lines) -> None:
    async def serve(peer: Peer) -> None:
        await peer.read()
        await peer.say(BUSY)
        await peer.stream.aclose()

    async with lines.to(serve):
        wire = await lines.connect()
        assert await lines.ask(wire, LARGE) == b""
        assert (wire.status, wire.headers[b"retry-after"], wire.is_lasting) == (503, "5", False)


async def test_who_closes_in_the_middle_of_an_answer_has_not_answered(lines: Lines) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer(b"whole")[:-1])
        await peer.stream.aclose()

    async with lines.to(serve):
        with pytest.raises(LostError, match="middle of its answer") as lost:
            await lines.ask(await lines.connect())
        assert lost.value.kind == "closed"


async def test_who_takes_nothing_in_is_not_waited_for(lines: Lines) -> None:
    async def serve(peer: Peer) -> None:
        await peer.read()
        await trio.sleep_forever()

    async with lines.to(serve):
        wire = await lines.connect()
        with pytest.raises(trio.TooSlowError):
            await wire._line.send(LARGE, 0.01)


async def test_who_speaks_no_tls_is_not_reached_and_it_is_said_why(lines: Lines) -> None:
    """It was called EPERM: TLS has numbers of its own."""

    async def serve(peer: Peer) -> None:
        await peer.stream.receive_some()
        await peer.stream.send_all(answer(b"no TLS"))

    lines.scheme = "https"
    async with lines.to(serve):
        with pytest.raises(UnreachedError, match="SSL") as unreached:
            await lines.connect()
        error = unreached.value
        assert (error.is_shared, error.kind) == (False, "WRONG_VERSION_NUMBER")


async def test_a_certificate_of_another_is_called_so(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(peer: Peer) -> None:
        await peer.read()

    monkeypatch.setattr(network, "tls_context", ssl.create_default_context)  # does not believe the test's authority
    if lines.theirs is not None:
        async with lines.to(serve):
            with pytest.raises(UnreachedError) as unreached:
                await lines.connect()
            assert unreached.value.kind == "CERTIFICATE_VERIFY_FAILED"
