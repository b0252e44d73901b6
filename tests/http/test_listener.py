"""A door closes in stages, and none of them waits for a peer for ever."""

import socket
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import jqd.http.listener as listener_module
from jqd.http import ListenerConfig, from_asgi, listen, serve_http
from jqd.http.address import USER_TIMEOUT_MS
from jqd.http.listener import Listener
from jqd.http.transport import STRAIGHT_MAX, SocketTransport
from tests.http.transports import CLIENT, Log, MemoryPipe, Talk, echo

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
CONFIG = ListenerConfig()


class Hall:
    """A door whose connections lie in memory."""

    def __init__(self, app: Any, nursery: trio.Nursery, config: ListenerConfig = CONFIG) -> None:
        self.log = Log()
        with listen("127.0.0.1", 0) as listener:
            self.door = Listener(from_asgi(app), listener, config, self.log)
        self._nursery = nursery
        nursery.start_soon(self.door.watch)

    async def enter(self, data: bytes = b"") -> Talk:
        talk = Talk(self.door._context, self.log, MemoryPipe())
        assert self.door._context.limit.join(talk.connection)
        talk.pipe.feed(data)

        async def run() -> None:
            await self.door._run(talk.connection)
            talk.over.set()

        self._nursery.start_soon(run)
        await wait_all_tasks_blocked()
        return talk


async def test_what_is_idle_goes_at_once_and_what_is_under_way_ends(autojump_clock: None) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(CONFIG.grace_s / 2)
        await echo(scope, receive, send)

    async with trio.open_nursery() as nursery:
        hall = Hall(slow, nursery)
        silent, partial, busy = await hall.enter(), await hall.enter(GET[:9]), await hall.enter(GET + GET)
        began_s = trio.current_time()
        nursery.start_soon(hall.door.close)
        for talk in (silent, partial):
            assert await talk.wait_over() == b""
        assert trio.current_time() == began_s
        busy.pipe.feed_eof()
        sent = await busy.wait_over()
        assert sent.count(b" 200 OK") == 1
        assert b"connection: close" in sent, "no other request is taken"
        assert trio.current_time() - began_s == CONFIG.grace_s / 2
        nursery.cancel_scope.cancel()
    assert hall.log.lines == []


async def test_what_does_not_end_is_cut_off(autojump_clock: None) -> None:
    async def stuck(scope: Any, receive: Any, send: Any) -> None:
        async def fail_late() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("a mistake while it is being cancelled")

        async with trio.open_nursery() as inner:
            inner.start_soon(fail_late)
            inner.start_soon(trio.sleep_forever)

    async def big(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(1 << 20)})

    for app in (stuck, big):
        async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
            hall = Hall(app, nursery)
            talk = await hall.enter()
            talk.pipe.reads = False
            talk.pipe.feed(GET)
            await wait_all_tasks_blocked()
            began_s = trio.current_time()
            await hall.door.close()
            assert trio.current_time() - began_s == CONFIG.grace_s
            nursery.cancel_scope.cancel()
            outer.start_soon(trio.sleep, 0)
        assert talk.pipe.closed == "abort"


async def test_slow_heads_give_way_too(autojump_clock: None) -> None:
    async with trio.open_nursery() as nursery:
        hall = Hall(echo, nursery, ListenerConfig(connections_max=3, address_connections_max=3))
        slow = [await hall.enter(GET[:9]) for _ in range(3)]
        for first in slow:
            talk = await hall.enter(GET)
            assert await first.wait_over() == b""
            assert b" 200 OK" in await talk.pipe.wait_sent(b"/a ")
        nursery.cancel_scope.cancel()
    assert talk.connection.client == CLIENT


async def test_who_gives_way_goes_at_once(autojump_clock: None) -> None:
    """Its place counts as free: to wait for its goodbye would open more descriptors than there are places."""
    async with trio.open_nursery() as nursery:
        hall = Hall(echo, nursery, ListenerConfig(connections_max=1))
        first = await hall.enter(GET)
        began_s = trio.current_time()
        await hall.enter()
        assert b" 200 OK" in await first.wait_over()
        assert trio.current_time() == began_s
        nursery.cancel_scope.cancel()


async def test_other_limits_hold_from_then_on_for_those_that_are_there_too(autojump_clock: None) -> None:
    async with trio.open_nursery() as nursery:
        hall = Hall(echo, nursery)
        talk = await hall.enter(GET)
        house = hall.door._context
        kept = house.read_head(GET)
        hall.door.change(ListenerConfig(idle_s=3.0, connections_max=7, address_connections_max=5))
        assert (house.limit.total_max, house.limit.address_max) == (7, 5)
        assert house.read_head(GET) is not kept, "what was made of it by other limits is forgotten"
        began_s = trio.current_time()
        talk.pipe.feed(GET)
        await talk.wait_over()
        assert trio.current_time() - began_s < 10, "and not after the 75 s that it began with"
        nursery.cancel_scope.cancel()


async def test_sockets_are_set_as_the_listener_is() -> None:
    """A peer that vanished is noticed in time, and answers do not wait for more to send."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        await trio.lowlevel.wait_readable(listener)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS


async def test_more_than_a_socket_holds_goes_both_ways() -> None:
    data = bytes(range(256)) * 16_384
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    pipe, peer = SocketTransport(ours), SocketTransport(theirs)
    heard = bytearray()
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipe.send_all, data)
        nursery.start_soon(turn)
        while len(heard) < len(data):
            heard += await peer.receive_some(256)
        nursery.cancel_scope.cancel()
    assert heard == data
    assert turns > len(data) / 256 / STRAIGHT_MAX / 2, "others had their turn"
    await pipe.finish()
    assert await peer.receive_some(1) == b""
    peer.close()
    pipe.close()


async def test_when_too_many_are_turned_away_no_more_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "TURNED_AWAY_MAX", 0)
    monkeypatch.setattr(listener_module, "STRAIGHT_MAX", 2)
    inside, going, stopped, log = trio.Event(), trio.Event(), trio.Event(), Log()

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        inside.set()
        await going.wait()

    listener = listen("127.0.0.1", 0)
    place = listener.getsockname()[:2]
    async with trio.open_nursery() as nursery:
        config = ListenerConfig(connections_max=1)
        await nursery.start(
            partial(serve_http, from_asgi(busy), listener, stopped=stopped.wait, config=config, log=log)
        )
        async with await trio.open_tcp_stream(*place) as first:
            await first.send_all(GET)
            await inside.wait()
            for _ in range(6):
                async with await trio.open_tcp_stream(*place) as other:
                    assert await other.receive_some() == b""
            going.set()
        stopped.set()
    told = [line["event"] for line in log.lines if line["event"] != "http.broken"]
    assert told == ["http.full", "http.unanswered"]
