"""The second door: HTTP/1 as the first has it, to the byte, and HTTP/2 that nobody can break for others."""

import random
import re
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from jqd.doors import DoorConfig, bind, serve_http
from jqd.doors.classic import STREAMS_MAX, TURN_BYTES
from jqd.doors.config import DoorConfig as Config
from jqd.doors.listener import Door
from tests.api.edge import Edge
from tests.doors.pipes import Log
from tests.doors.streams import BOTH, LEAN, PATIENCE_S, PREFACE, echo, talking
from tests.wire.attack import talk
from tests.wire.corpus import ANYWHERE, DAEMON, SETTINGS, Case, _frame

# What begins with HTTP/2 is heard by one of them; the ids and dates of jobs are new each time.
SAID_ANEW = re.compile(rb"date: [^\r]*|[0-9A-HJKMNP-TV-Z]{26}")


# ---------------------------------------------------------------- HTTP/1


@asynccontextmanager
async def listening(app: object, config: DoorConfig) -> AsyncIterator[int]:
    listener = bind("127.0.0.1:0")
    stopped = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, app, listener, stopped=stopped.wait, config=config, log=Log())  # type: ignore[arg-type]
        await nursery.start(serve)
        yield listener.getsockname()[1]
        stopped.set()


async def test_http_1_is_answered_to_the_byte_as_at_the_first_door() -> None:
    edge = Edge()
    told: dict[str, list[bytes]] = {}

    async def ask(port: int, name: str, case: Case) -> None:
        data, whole = await talk(port, [case.data], "finish" if case.ends else "wait")
        assert whole, name
        told.setdefault(name, []).append(SAID_ANEW.sub(b"", data))

    async with listening(edge.api, LEAN) as lean, listening(edge.api, BOTH) as both:
        for name, case in {**ANYWHERE, **DAEMON}.items():
            if not case.data.startswith(PREFACE[:18]):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, lean, name, case)
                    nursery.start_soon(ask, both, name, case)
    assert len(told) > 120
    assert {name: answers for name, answers in told.items() if answers[0] != answers[1]} == {}


# ---------------------------------------------------------------- HTTP/2


def test_a_door_with_http_2_says_at_start_what_that_costs() -> None:
    log = Log()
    for config in (LEAN, BOTH):
        with bind("127.0.0.1:0") as listener:
            Door(echo, listener, config, log)
    (line,) = log.lines
    assert (line["event"], "resets" in str(line["cost"]), "proxy" in str(line["mend"])) == ("door.http2", True, True)


async def test_requests_of_one_connection_are_answered_side_by_side(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.ask(1, "/wait")
        talk.ask(3, "/a?x=1")
        talk.ask(5, "/b", method="POST", body=b"hello")
        talk.ask(7, "/big", method="HEAD")
        talk.ask(9, "/big")
        for _ in range(20):
            await talk.turn()
        assert talk.statuses == dict.fromkeys((3, 5, 7, 9), "200")
        assert (talk.bodies[3], talk.bodies[5], talk.bodies.get(7, b"")) == (b"/a ", b"/b hello", b"")
        assert talk.bodies[9] == bytes(1 << 20)
        assert talk.house.crowd.idle() == []
        talk.client.reset_stream(1)
        await talk.turn()
        assert talk.house.crowd.idle() == [talk.connection], "it may give way again"
        began_s = trio.current_time()
        await talk.wait_over()
        assert trio.current_time() - began_s == pytest.approx(Config().idle_s + Config().linger_s, abs=2.0)
    assert talk.log.lines == []


async def test_what_one_stream_does_wrong_ends_that_stream(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.ask(1, "/refuse", method="POST", body=b"x" * 16_000, end=False)
        talk.ask(3, "/fail")
        await talk.turn()
        for _ in range(30):  # far more than it takes: who is not heard must not hold up the others
            talk.client.send_data(1, b"x" * 2_000) if 1 not in talk.resets else None
            await talk.turn()
        talk.ask(5, "http://[::1/", method="GET")
        talk.ask(7, "/%ff")
        talk.ask(9, "/a", method="BREW")
        talk.ask(11, "/slow", method="POST", body=b"x", end=False)
        talk.ask(13, "/z")
        talk.ask(15, "/a", method="brew")
        talk.ask(17, "/a", ("jqd-tenant", "a"), ("jqd-tenant", "b"))
        await talk.turn()
        assert (talk.statuses[1], talk.bodies[1]) == ("413", b"too large")
        assert (talk.statuses[3], b"a-secret" in talk.bodies[3]) == ("500", False)
        assert [talk.statuses[stream] for stream in (5, 7, 9, 15, 17, 13)] == [*["400"] * 5, "200"]
        await trio.sleep(Config().body_grace_s + 1)
        await talk.turn()
        assert talk.statuses[11] == "408"
    (line,) = talk.log.lines
    assert (line["event"], line["error"], "a-secret" in str(line)) == ("door.app_failed", "ValueError", False)


async def test_streams_that_are_broken_off_do_not_add_up(autojump_clock: None) -> None:
    """Each is worked for to its end, whatever becomes of it: no more of them begin than a connection may have."""
    async with talking() as talk:
        for stream in range(1, 8 * STREAMS_MAX, 2):
            talk.ask(stream, "/wait")
            talk.client.reset_stream(stream)
        talk.pipe.feed(talk.client.data_to_send())
        await talk.turn()
        talk.ask(8 * STREAMS_MAX + 1, "/a")
        await talk.turn()
        assert talk.statuses == {8 * STREAMS_MAX + 1: "200"}
    assert talk.log.lines == []


@pytest.mark.parametrize("path", ["/%ff", "/late"])
async def test_a_refusal_of_what_is_reset_already_leaves_the_others_alone(autojump_clock: None, path: str) -> None:
    """A request and its reset came in one packet: the 400 had no stream any more, and the connection ended."""
    async with talking() as talk:
        talk.ask(1, "/b", method="POST", body=b"he", end=False)
        await talk.turn()
        for stream in range(3, 8 * STREAMS_MAX, 2):
            talk.ask(stream, path, method="POST", body=b"", end=False)
            talk.client.reset_stream(stream)
        await talk.turn()
        talk.client.send_data(1, b"llo", end_stream=True)
        await talk.turn()
        assert talk.bodies[1] == b"/b hello"
    assert talk.log.lines == []


async def test_a_client_that_goes_while_it_is_answered_is_no_fault_of_ours(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.ask(1, "/wait")
        talk.ask(3, "/b", method="POST", body=b"he", end=False)
        await talk.turn()
        talk.pipe.reads = False
        talk.client.send_data(3, b"llo", end_stream=True)
        talk.pipe.feed(talk.client.data_to_send())
        await wait_all_tasks_blocked()
        talk.pipe.reset()
        await talk.wait_over()
    assert {(line["event"], line.get("error")) for line in talk.log.lines} <= {("door.broken", None)}


async def test_a_flood_of_frames_leaves_the_others_their_turns(autojump_clock: None) -> None:
    """All of a read was heard in one turn: five connections full of SETTINGS kept everybody waiting for 430 ms."""
    steps: list[int] = []
    async with talking() as talk:
        await talk.turn()
        flood = _frame(6, bytes(8), stream=0, flags=0) * 3_000
        begin = before = len(talk.pipe.sent)
        talk.pipe.feed(flood)
        with trio.fail_after(PATIENCE_S):
            while before < begin + len(flood):
                await trio.lowlevel.checkpoint()
                steps.append(len(talk.pipe.sent) - before)
                before = len(talk.pipe.sent)
    assert max(steps) < 2 * TURN_BYTES, "each is answered by as many bytes"


@pytest.mark.parametrize(("size", "taken"), [(BOTH.head_bytes_max - 1_000, True), (BOTH.head_bytes_max, False)])
async def test_a_head_is_not_read_beyond_our_limit(autojump_clock: None, size: int, taken: bool) -> None:
    """h2's own limit is 64 KiB, and so much takes a tenth of a second."""
    async with talking() as talk:
        await talk.turn()
        fields = [(":method", "GET"), (":path", "/a"), (":scheme", "http"), (":authority", "localhost")]
        talk.client.send_headers(1, [*fields, ("x-long", "a" * size)], end_stream=True)
        await talk.turn()
        assert (talk.statuses.get(1) == "200", talk.goaway is None) == (taken, taken)


async def test_who_takes_no_answer_is_cut_off(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        talk.ask(1, "/big")
        talk.pipe.feed(talk.client.data_to_send())
        began_s = trio.current_time()
        await talk.wait_over()
        assert trio.current_time() - began_s < Config().send_s + (1 << 20) / Config().send_rate + 10


async def test_nothing_is_kept_of_what_comes_behind_an_answer_that_nobody_takes(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        talk.ask(1, "/refuse", method="POST", body=b"x", end=False)
        await talk.turn()
        tracemalloc.start()
        try:
            for _ in range(300):
                talk.client.send_data(1, bytes(16_000))
                await talk.turn()
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 1 << 20, "of nearly five times as many"
        talk.client.increment_flow_control_window(100, 1)
        await talk.turn()
        assert (talk.statuses[1], talk.bodies[1]) == ("413", b"too large")


async def test_a_door_that_closes_lets_requests_end(autojump_clock: None) -> None:
    async with talking() as talk:
        talk.ask(1, "/b", method="POST", body=b"he", end=False)
        await talk.turn()
        talk.connection.close_soon()
        talk.ask(3, "/late")
        talk.client.send_data(1, b"llo", end_stream=True)
        await talk.turn()
        assert (talk.bodies[1], 3 in talk.resets, talk.goaway) == (b"/b hello", True, 3)
        talk.pipe.feed_eof()
        await talk.wait_over()


HOSTILE: dict[str, bytes] = {
    "odd method": _frame(1, b"\x02\x01\xff\x86\x84\x41\x01a"),
    "CONNECT": _frame(1, b"\x02\x07CONNECT\x41\x01a"),
    "WebSocket": _frame(1, b"\x02\x07CONNECT\x40\x09:protocol\x09websocket\x86\x84\x41\x01a"),
    "odd path": _frame(1, b"\x82\x86\x04\x02/\xff\x41\x01a"),
    "no pseudo headers": _frame(1, b""),
    "PRIORITY": b"".join(_frame(2, b"\0\0\0\0\x10", stream=n, flags=0) for n in range(1, 4_001, 2)),
    "headers without end": _frame(1, b"\x82", flags=0) + _frame(9, b"\x82", flags=0) * 1_000,
    "data of nobody": _frame(0, b"x" * 100, stream=7),
    "reset of nobody": _frame(3, b"\0\0\0\0", stream=7, flags=0),
    "window": _frame(8, b"\x7f\xff\xff\xff", stream=0, flags=0) * 2,
    "GOAWAY": _frame(7, bytes(8), stream=0, flags=0),
    "huge frame": b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "settings": _frame(4, b"\x00\x04\xff\xff\xff\xff", stream=0, flags=0),
    "pings": _frame(6, bytes(8), stream=0, flags=0) * 1_000,
    "garbage": b"\xff" * 400,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_of_a_connection_leaves_it(autojump_clock: None, name: str) -> None:
    async with talking() as talk:
        talk.pipe.feed(PREFACE + SETTINGS + HOSTILE[name])
        await wait_all_tasks_blocked()
        talk.pipe.feed_eof()
        await talk.wait_over()
    assert {line["event"] for line in talk.log.lines} <= {"door.http2_failed"}
    assert len(talk.log.lines) <= 1


async def test_nor_does_anything_that_is_near_to_http_2(autojump_clock: None) -> None:
    source = random.Random(9)
    sound = (
        PREFACE
        + SETTINGS
        + _frame(1, b"\x82\x86\x84\x41\x01a")
        + _frame(1, b"\x83\x86\x84\x41\x01a", stream=3, flags=4)
    )
    sound += _frame(0, b"hello", stream=3, flags=1) + _frame(3, b"\0\0\0\0", stream=1, flags=0)
    lines: list[object] = []
    for _ in range(150):
        data = bytearray(sound + b"".join(source.sample(list(HOSTILE.values()), 1))[:2_000])
        for _ in range(source.choice((0, 1, 3))):
            data[source.randrange(len(PREFACE), len(data))] = source.randrange(256)
        async with talking() as talk:
            for piece in (data[:60], data[60:]):
                talk.pipe.feed(bytes(piece))
                await wait_all_tasks_blocked()
            source.choice((talk.pipe.feed_eof, talk.pipe.reset))()
            await talk.wait_over()
        lines += [line["event"] for line in talk.log.lines]
    assert set(lines) <= {"door.http2_failed", "door.broken"}


async def test_over_tls_who_asks_for_it_has_it(certificate: Sequence[object], authority: ssl.SSLContext) -> None:
    authority.set_alpn_protocols(["h2", "http/1.1"])
    config = DoorConfig(streams=True, certificate=tuple(certificate))  # type: ignore[arg-type]
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(1, [(":method", "GET"), (":path", "/a"), (":scheme", "https"), (":authority", "a")], True)
    async with listening(echo, config) as port:
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        async with trio.SSLStream(tcp, authority, server_hostname="localhost") as stream:
            await stream.send_all(client.data_to_send())
            assert stream.selected_alpn_protocol() == "h2"
            told = b""
            with trio.fail_after(10):
                while b"/a " not in told:
                    told += await stream.receive_some()
