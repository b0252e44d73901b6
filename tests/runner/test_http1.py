"""HTTP with workers: answers in any pieces, lines that are kept, and TLS."""

import ssl
from collections.abc import Sequence

import pytest
import trio
import trustme

from jqd.runner.protocols.protocol import Request
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.transport import network
from jqd.runner.transport.http1 import HEAD_BYTES_MAX, Line, LostError, Origin, Wire, head_of
from jqd.runner.transport.pool import Pool
from tests.runner.conftest import OpenHouse, hold

ORIGIN = Origin("http", "h", 80, AddressPolicy.LOOPBACK)
OTHER = ORIGIN._replace(host="i")
ASK = Request("POST", "http://h:81/a?b", [("X", "é")], b"body")


class Script(Line):
    """A line whose other end says what was written down; then it hangs, or ends if `closes`."""

    def __init__(self, pieces: Sequence[bytes] = (), *, closes: bool = True) -> None:
        self.sent = b""
        self.closed = False
        self.quiet = True
        self._pieces = [*pieces]
        self._closes = closes

    async def send(self, data: bytes, within_s: float) -> None:
        self.sent += data

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._pieces and not self._closes:
            await trio.sleep_forever()
        return self._pieces.pop(0) if self._pieces else b""

    def is_quiet(self) -> bool:
        return self.quiet

    def close(self) -> None:
        self.closed = True


async def hear(*pieces: bytes) -> tuple[int, dict[bytes, str], bytes, bool]:
    wire = Wire(Script(pieces), ORIGIN)
    await wire.ask(ASK)
    body = b""
    while piece := await wire.read():
        body += piece
    return wire.status, wire.headers, body, wire.is_lasting


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "the worker answered 101 and",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "what the worker answered is no HTTP/1.1 ("),
    ],
)
async def test_what_is_no_http_is_told_in_our_words(answer: bytes, why: str) -> None:
    with pytest.raises(LostError) as lost:
        await hear(answer)
    assert str(lost.value).startswith(why)
    assert "Pause" not in str(lost.value)


ANSWERS = {
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello": (200, b"hello", True),
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 C\r\nContent-Length: 0\r\n\r\n": (201, b"", True),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n": (
        200, b"hello", True
    ),
    b"HTTP/1.1 204 No Content\r\n\r\n": (204, b"", True),
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi": (200, b"hi", False),
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi": (200, b"hi", False),
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end": (200, b"until the end", False),
}  # fmt: skip


@pytest.mark.parametrize("data", ANSWERS)
async def test_an_answer_reads_the_same_however_it_is_cut(data: bytes) -> None:
    whole = await hear(data)
    assert (whole[0], *whole[2:]) == ANSWERS[data]
    assert b"link" not in whole[1], "what a note says belongs to no answer"
    assert await hear(*(data[at : at + 1] for at in range(len(data)))) == whole
    for cut in range(1, len(data)):
        assert await hear(data[:cut], data[cut:]) == whole


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello", "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhe", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n0\r\n\r\n", "no HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nwhatever", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (HEAD_BYTES_MAX // 6), "no HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (HEAD_BYTES_MAX // 24), "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * HEAD_BYTES_MAX, "no HTTP"),
    ],
    ids=lambda each: str(each)[:60],
)
async def test_what_is_no_answer(data: bytes, kind: str) -> None:
    pieces = [data[at : at + 1_000] for at in range(0, len(data), 1_000)]
    with pytest.raises(LostError) as lost:
        await hear(*pieces)
    assert lost.value.kind == kind


async def test_what_came_whole_before_the_fault_stands() -> None:
    wire = Wire(Script([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno chunk\r\n"]), ORIGIN)
    await wire.ask(ASK)
    assert await wire.read() == b"hi"
    with pytest.raises(LostError, match="no HTTP"):
        await wire.read()
    assert not wire.is_lasting


@pytest.mark.parametrize("surplus", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"])
async def test_more_than_an_answer_is_no_part_of_it(surplus: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert (await hear(answer + surplus))[2:] == (b"hi", False)


async def test_an_answer_that_was_not_read_to_its_end_spoils_the_line() -> None:
    line = Script([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"], closes=False)
    wire = Wire(line, ORIGIN)
    lasting = [wire.is_lasting]  # nothing was asked yet
    await wire.ask(ASK)
    lasting.append(wire.is_lasting)
    assert line.sent == b"POST /a?b HTTP/1.1\r\nHost: h:81\r\nX: \xe9\r\nContent-Length: 4\r\n\r\nbody"
    assert await wire.read() == b"hi"
    assert [*lasting, wire.is_lasting] == [True, False, True]


def test_a_header_is_one_line() -> None:
    for value in ("a\nb", "a\r\nb", "a\r"):
        with pytest.raises(ValueError, match="would be two"):
            head_of(ASK._replace(headers=[("X", value)]))
    assert head_of(Request("GET", "http://h", [])) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


# ------------------------------------------------ lines that are kept


class Lines:
    """A network that remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[Script] = []

    async def connect(self, origin: Origin, within_s: float) -> Line:
        await trio.lowlevel.checkpoint()
        self.given.append(Script())
        return self.given[-1]


async def test_the_line_used_last_is_used_again_by_its_own_origin(autojump_clock: None) -> None:
    lines = Lines()
    pool = Pool(lines, 8, keepalive_s=4.0)  # type: ignore[arg-type]
    first, second = [await pool.take(ORIGIN, 1.0) for _ in range(2)]
    pool.give(first)
    pool.give(second)
    for stranger in (OTHER, ORIGIN._replace(standing=AddressPolicy.OUTSIDE), ORIGIN._replace(scheme="https")):
        wire = await pool.take(stranger, 1.0)
        assert wire not in (first, second), "nobody uses a line that he could not have had himself"
        pool.give(wire)
    assert await pool.take(ORIGIN, 1.0) is second
    lines.given[0].quiet = False  # its worker closed it meanwhile
    assert await pool.take(ORIGIN, 1.0) is not first
    assert lines.given[0].closed
    pool.give(second)
    await trio.sleep(4.1)
    assert await pool.take(ORIGIN, 1.0) is not second, "it was kept for too long"
    assert lines.given[1].closed
    pool.close()


@pytest.mark.parametrize("quiet", [True, False])
async def test_of_an_origin_nothing_is_kept_when_its_last_line_is_used_again(quiet: bool) -> None:
    lines = Lines()
    pool = Pool(lines, 8, keepalive_s=4.0)  # type: ignore[arg-type]
    pool.give(await pool.take(ORIGIN, 1.0))
    lines.given[0].quiet = quiet
    await pool.take(ORIGIN, 1.0)
    assert (pool._kept, pool._ages) == ({}, {}), "workers come and go, each at a port of its own"


async def test_kept_lines_make_room_and_busy_ones_do_not(autojump_clock: None) -> None:
    lines = Lines()
    pool = Pool(lines, 2, keepalive_s=4.0)  # type: ignore[arg-type]
    one, two = [await pool.take(ORIGIN, 1.0) for _ in range(2)]
    with pytest.raises(network.CrowdedError, match="all 2"):
        await pool.take(ORIGIN, 1.0)
    pool.give(one)
    await pool.take(OTHER, 1.0)
    assert lines.given[0].closed, "else there would be three"
    pool.give(two)
    assert not lines.given[1].closed
    pool.close()
    assert lines.given[1].closed


# ------------------------------------------------ TLS


@pytest.mark.parametrize("name", ["localhost", "other.test"])
async def test_a_worker_behind_tls(open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(ours)
    authority.issue_cert(name).configure_cert(theirs)
    monkeypatch.setattr(network, "tls_context", lambda: ours)
    connections = 0

    async def serve(stream: "trio.SSLStream[trio.SocketStream]") -> None:
        nonlocal connections
        connections += 1
        heard = b""
        try:
            while data := await stream.receive_some():
                heard += data
                if heard.endswith(b"null"):
                    heard = b""
                    await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        except trio.BrokenResourceError:
            assert name == "other.test", "the daemon took a certificate that it should refuse, or broke off"

    async with open_house() as house, trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_ssl_over_tcp, serve, 0, theirs)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        house.register(f"https://localhost:{port}/", style="webhook")
        for _ in range(2):
            house.run(hold(1))
            await house.stopped(len(house.outcomes) + len(house.returned) + 1)
            if name == "other.test":
                break
        assert (len(house.outcomes), len(house.returned)) == ((2, 0) if name == "localhost" else (0, 1))
        assert connections == (1 if name == "localhost" else connections)
        nursery.cancel_scope.cancel()
