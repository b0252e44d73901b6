"""Clients that leave before they are answered: what is done for them is given up, unless it is to be kept."""

import socket

import pytest
import trio

from jqd.http.exchange import Exchange
from jqd.http.listener import LOOK_S
from jqd.http.request import Response
from jqd.http.transport import SocketTransport
from tests.http.requests import GET, answers
from tests.http.transports import Talk, echo, talking


class Work:
    """What an application does for a client; it ends by itself after `lasts_s`."""

    def __init__(self, talk: Talk, lasts_s: float) -> None:
        self.talk, self.lasts_s = talk, lasts_s
        self.ended_s = 0.0
        talk.house.app = self.look

    async def look(self, asked: Exchange) -> Response | None:
        began_s = trio.current_time()
        try:
            with asked.while_there() as work:
                await trio.sleep(self.lasts_s)
            return None if work.cancelled_caught else Response(200, body=b"looked")
        finally:
            self.ended_s = trio.current_time() - began_s


@pytest.mark.parametrize("behind", [b"", GET * 1_000], ids=["nothing", "requests that nobody reads"])
@pytest.mark.parametrize("how", ["feed_eof", "reset"])
async def test_what_is_done_for_who_has_left_ends(autojump_clock: None, how: str, behind: bytes) -> None:
    async with talking(echo) as talk:
        work = Work(talk, 1_000.0)
        talk.pipe.feed(GET + behind)
        await trio.sleep(3 * LOOK_S)
        getattr(talk.pipe, how)()
        assert await talk.wait_over() == b""
        assert 3 * LOOK_S < work.ended_s <= 5 * LOOK_S
        assert not talk.house.limit.present
    assert talk.log.lines == []


async def test_who_only_listens_on_is_answered_if_that_is_soon(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        Work(talk, LOOK_S * 0.9)
        talk.pipe.feed(GET)
        talk.pipe.feed_eof()
        assert answers(await talk.wait_over()) == [(200, b"looked")]


async def test_who_stays_is_waited_for(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        Work(talk, 100.0)
        talk.pipe.feed(GET)
        assert answers(await talk.pipe.wait_sent(b"looked")) == [(200, b"looked")]


async def test_what_is_to_be_kept_goes_on_to_its_end(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        done: list[float] = []

        async def keep(asked: Exchange) -> Response:
            await trio.sleep(100.0)
            done.append(trio.current_time())
            return Response(200, body=b"kept")

        talk.house.app = keep
        talk.pipe.feed(GET)
        talk.pipe.feed_eof()
        assert answers(await talk.wait_over()) == [(200, b"kept")]
        assert len(done) == 1


@pytest.mark.parametrize("unread", [b"", b"more"])
def test_a_socket_tells_whether_its_peer_has_left_also_behind_what_nobody_read(unread: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as peer:
        ours, _ = listener.accept()
        with ours:
            pipe = SocketTransport(ours)
            peer.sendall(unread)
            assert not pipe.has_left()
            peer.shutdown(socket.SHUT_WR)
            assert pipe.has_left()


async def test_a_socket_tells_of_a_peer_that_broke_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as peer:
        ours, _ = listener.accept()
        with ours:
            pipe = SocketTransport(ours)
            SocketTransport(peer).abort()
            assert pipe.has_left()
