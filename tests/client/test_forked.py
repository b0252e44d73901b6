"""Connections of a client whose process has forked: the child has their descriptors, too, as long as it lives."""

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from jqd.client.connections import IDLE_S_MAX, Connections
from jqd.client.http1 import Connection
from jqd.client.transport import TransportError
from jqd.testing.clock import ManualClock
from tests.client.served import OK, PATIENCE_S, SOON_S, asked, read, serving
from tests.client.served import opened as opened  # the fixture


class Forked:
    """A server that answers each request and notes that a connection has ended; and what a child has of them."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.answer = OK
        self.descriptors: list[int] = []

    def act(self, taken: socket.socket) -> None:
        while read(taken):
            taken.sendall(self.answer)
        self.ended.set()

    def fork(self, connections: Connections) -> None:
        """What a fork does to connections: it copies their descriptors, and whoever closes one of two ends none."""
        kept = [*connections._idle, *connections._busy]
        assert kept
        self.descriptors += [os.dup(each._socket.fileno()) for each in kept]

    def leave(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


@pytest.fixture
def forked() -> Iterator[Forked]:
    made = Forked()
    yield made
    made.leave()


def close_the_client(at: Connections, url: str, forked: Forked) -> None:
    at.send(asked(url))
    forked.fork(at)
    at.close()


def let_it_age(at: Connections, url: str, forked: Forked) -> None:
    clock = at._clock = ManualClock()  # type: ignore[assignment]
    at.send(asked(url))
    forked.fork(at)
    clock.advance(IDLE_S_MAX + 1)
    at.send(asked(url))


def find_it_stale(at: Connections, url: str, forked: Forked) -> None:
    at.send(asked(url))
    forked.fork(at)
    at._idle[0].free_since_s -= IDLE_S_MAX + 1
    at.send(asked(url + "/elsewhere"))


def leave_a_stream(at: Connections, url: str, forked: Forked) -> None:
    forked.answer = b"HTTP/1.1 200 OK\r\n\r\nsome"
    pieces = at.send(asked(url, streams=True)).pieces
    assert pieces is not None
    assert next(pieces) == b"some"
    forked.fork(at)
    del pieces


def lose_the_answer(at: Connections, url: str, forked: Forked) -> None:
    at.send(asked(url))
    forked.fork(at)
    forked.answer = b"no HTTP"
    with pytest.raises(TransportError):
        at.send(asked(url))


def hear_nothing(at: Connections, url: str, forked: Forked) -> None:
    at.send(asked(url))
    forked.fork(at)
    forked.answer = OK[:10]
    with pytest.raises(TransportError):
        at.send(asked(url, read_s=SOON_S))


@pytest.mark.parametrize(
    "close", [close_the_client, let_it_age, find_it_stale, leave_a_stream, lose_the_answer, hear_nothing]
)
def test_a_connection_that_a_client_closes_ends_though_a_child_lives(
    opened: Connections, forked: Forked, close: Callable[[Connections, str, Forked], None]
) -> None:
    """The daemon kept it until the child ended, and counted it as one of the connections that it may have."""
    with serving(forked.act, forked.act) as server:
        close(opened, server.url, forked)
        assert forked.ended.wait(PATIENCE_S)


def test_a_child_ends_no_connection_of_its_parent(
    opened: Connections, forked: Forked, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(forked.act) as server:
        opened.send(asked(server.url))
        forked.fork(opened)  # the descriptor that is left is the parent's then
        (kept,) = opened._idle
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            kept.shut_down()
            kept.close()
        with socket.socket(fileno=os.dup(forked.descriptors[0])) as parents:
            parents.settimeout(PATIENCE_S)
            parents.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert parents.recv(len(OK)) == OK


def test_a_child_of_a_fork_ends_no_stream_of_its_parent(
    opened: Connections, forked: Forked, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(forked.act) as server:
        pieces = opened.send(asked(server.url, streams=True)).pieces
        assert pieces is not None
        assert next(pieces) == b"ok"
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            del pieces
        assert opened._under_way == 1
        left: Connection = opened._busy.pop()
        assert left.is_quiet(), "and it is open"
        left.close()
