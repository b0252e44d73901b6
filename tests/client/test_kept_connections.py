"""Connections that a client keeps, closes and streams by."""

import select
import socket
import threading

import pytest

from jqd.client import Client, ClientClosed, TimedOut
from jqd.client import connections as pool
from jqd.client.connections import IDLE_S_MAX, Connections
from jqd.client.http import Http
from jqd.client.http1 import Connection
from jqd.client.transport import UnreachedError
from jqd.testing.clock import ManualClock
from tests.client.served import OK, PATIENCE_S, SOON_S, asked, read, saying, serving
from tests.client.served import opened as opened  # the fixture

# ---------------------------------------------------------------- kept connections


def test_the_connection_that_was_used_last_is_used_first(opened: Connections) -> None:
    with serving(saying(OK, OK, OK), saying(OK)) as server:
        first, second = (asked(server.url, streams=True) for _ in range(2))
        answers = [opened.send(each) for each in (first, second)]
        for answer in reversed(answers):
            assert b"".join(answer.pieces or ()) == b"ok"
        for _ in range(2):
            assert opened.send(asked(server.url)).body == b"ok"
        assert server.accepted == 2


@pytest.mark.parametrize("last", [OK, OK + b"HTTP/1.1 408 Too slow\r\n\r\n"], ids=["closed", "said more"])
@pytest.mark.parametrize("has_poll", [True, False], ids=["by poll", "by select"])
def test_a_kept_connection_that_the_daemon_has_ended_is_found_before_it_is_used(
    opened: Connections, last: bytes, has_poll: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_poll:
        monkeypatch.delattr(select, "poll")
    with serving(saying(last), saying(OK)) as server:
        opened.send(asked(server.url))
        for kept in opened._idle:
            select.select([kept._socket], [], [], PATIENCE_S)
        assert opened.send(asked(server.url, "POST", b"x")).status == 200
        assert server.accepted == 2


def test_what_was_idle_for_long_is_not_used_and_not_held(opened: Connections) -> None:
    clock = opened._clock = ManualClock()  # type: ignore[assignment]
    with serving(saying(OK, OK, OK), saying(OK, OK, OK), saying(OK)) as server:
        answers = [opened.send(asked(server.url, streams=True)) for _ in range(2)]
        for answer in answers:
            assert b"".join(answer.pieces or ()) == b"ok"
        clock.advance(IDLE_S_MAX - 1)
        opened.send(asked(server.url))
        clock.advance(2)
        opened.send(asked(server.url))
        assert (server.accepted, len(opened._idle)) == (2, 1), "the one below is closed as well"
        clock.advance(IDLE_S_MAX + 1)
        opened.send(asked(server.url))
        assert server.accepted == 3


def test_each_daemon_has_its_own_connections(opened: Connections) -> None:
    with serving(saying(OK, OK)) as one, serving(saying(OK, OK)) as two:
        for server in (one, two, one, two):
            opened.send(asked(server.url))
        assert (one.accepted, two.accepted) == (1, 1)


def test_who_waits_for_a_connection_is_sooner_than_who_has_just_had_one(
    opened: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread must wake first. Of 40 threads that push in a loop, 8 would have waited until they gave up."""
    monkeypatch.setattr(pool, "CONNECTIONS_MAX", 1)
    opened._begin(SOON_S)
    waiting = threading.Thread(target=opened._begin, args=(PATIENCE_S,))
    waiting.start()
    while not opened._queued:
        continue
    opened._end(None, waits=False)
    with pytest.raises(UnreachedError):
        opened._begin(SOON_S)
    waiting.join()
    opened._end(None, waits=False)
    assert opened._under_way == 0


@pytest.mark.parametrize("streams", [False, True])
def test_the_answer_to_an_interrupted_request_is_nobodys(
    opened: Connections, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    real, interrupted = Connection._receive, list[bytes]()

    def receive(self: Connection) -> bytes:
        data = real(self)
        if not interrupted:
            interrupted.append(data)
            raise KeyboardInterrupt
        return data

    with serving(saying(OK, OK), saying(OK.replace(b"ok", b"no"))) as server:
        monkeypatch.setattr(Connection, "_receive", receive)
        with pytest.raises(KeyboardInterrupt):
            opened.send(asked(server.url, streams=streams))
        assert (opened._idle, opened._busy, opened._under_way) == ([], set(), 0)
        assert opened.send(asked(server.url)).body == b"no"


# ---------------------------------------------------------------- closed by another thread


@pytest.mark.parametrize("what", ["call", "wait", "lines"])
def test_a_close_ends_what_is_under_way(what: str) -> None:
    arrived = threading.Event()

    def act(taken: socket.socket) -> None:
        read(taken)
        if what == "lines":
            taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n: hi\n")
        arrived.set()
        taken.recv(1)

    def close(http: Http) -> None:
        arrived.wait(PATIENCE_S)
        http.close()

    def ask(http: Http) -> None:
        if what == "lines":
            list(http.lines("/v1/x", {}, PATIENCE_S))
        http.call("POST", "/v1/jobs", body=b"x", wait_s=PATIENCE_S * (what == "wait"))

    with serving(act) as server:
        http = Http(server.url, timeout_s=PATIENCE_S, token=None)
        closing = threading.Thread(target=close, args=(http,))
        closing.start()
        with pytest.raises(ClientClosed):
            ask(http)
        closing.join()
        with pytest.raises(ClientClosed):
            http.call("GET", "/v1/x")
    assert http._by_process.popitem()[1]._busy == set()  # type: ignore[attr-defined]


def test_a_close_ends_the_wait_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CONNECTIONS_MAX", 0)
    http = Http("http://127.0.0.1:9", timeout_s=PATIENCE_S, token=None)
    carrier = http._carrier()
    assert isinstance(carrier, Connections)

    def close() -> None:
        while not carrier._queued:
            continue
        http.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(ClientClosed):
        http.call("GET", "/v1/x")
    closing.join()


# ---------------------------------------------------------------- streams

STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(*pieces: str) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece.encode()), piece.encode()) for piece in pieces)


def test_a_line_of_a_stream_ends_where_its_writer_ended_it() -> None:
    """A log may hold what Python takes for the end of a line as well: an event was cut there, and could not be read."""
    text = 'data: {"lines":["one\u2028two\x85three"]}\r\n\nid: a\n'
    answer = STREAM.encode() + chunked(*text, "\n", "not whole") + b"0\r\n\r\n"
    with serving(saying(answer)) as server, Client(server.url) as client:
        lines = list(client._http.lines("/v1/x", {}, PATIENCE_S))
    assert lines == [*(line.removesuffix("\r") for line in text.split("\n")[:-1]), ""]


def test_a_stream_that_nobody_reads_to_its_end_is_closed_and_a_silent_one_timed_out() -> None:
    left = threading.Event()

    def act(taken: socket.socket) -> None:
        read(taken)
        taken.sendall(STREAM.encode() + chunked("a\n"))
        assert taken.recv(1) == b""
        left.set()

    with serving(act, act) as server, Client(server.url) as client:
        lines = client._http.lines("/v1/x", {}, PATIENCE_S)
        assert next(lines) == "a"
        del lines
        assert left.wait(PATIENCE_S)
        with pytest.raises(TimedOut):
            list(client._http.lines("/v1/x", {}, SOON_S))
