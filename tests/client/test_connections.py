"""The connections of a client against sockets that answer rightly, wrongly and not at all.

Which errors say that nothing was sent is a promise: a push behind any other may have been taken.
"""

import socket
import ssl

import pytest

from jqd.client import Unreachable
from jqd.client import connections as pool
from jqd.client.connections import Connections
from jqd.client.http import Http
from jqd.client.http1 import HEAD_BYTES_MAX
from jqd.client.transport import LostError, SilentError, TransportError, UnreachedError
from tests.client.served import OK, PATIENCE_S, SOON_S, Act, asked, held, read, reset, saying, serving, unread
from tests.client.served import opened as opened  # the fixture
from tests.client.sockets import URL, Scripted, connection

# ---------------------------------------------------------------- nothing was sent


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "no such name"), TimeoutError("timed out"), OSError(101, "no route")], ids=repr
)
def test_where_no_connection_is_made_nothing_was_sent(
    opened: Connections, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(UnreachedError) as caught:
        opened.send(asked("http://a.test"))
    assert caught.value.__cause__ is error


def test_where_nobody_listens_or_the_name_is_none_nothing_was_sent(opened: Connections) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://a..b", "http://é..b"):
        with pytest.raises(UnreachedError):
            opened.send(asked(url))
    assert opened._under_way == 0


@pytest.mark.parametrize("act", [unread, lambda taken: taken.sendall(b"HTTP/1.1 400 no TLS here\r\n\r\n")])
def test_where_no_tls_is_agreed_on_nothing_was_sent(act: Act) -> None:
    with serving(act) as server:
        url = server.url.replace("http", "https")
        with pytest.raises(UnreachedError) as caught:
            Connections([url]).send(asked(url, "POST", b"x", connect_s=SOON_S if act is unread else PATIENCE_S))
    assert isinstance(caught.value.__cause__, TimeoutError if act is unread else ssl.SSLError)


def test_where_no_connection_is_free_in_time_nothing_was_sent(
    opened: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CONNECTIONS_MAX", 1)
    opened._begin(SOON_S)
    with pytest.raises(UnreachedError, match="none of its 1 connections"):
        opened.send(asked("http://127.0.0.1:9", connect_s=SOON_S))
    http = Http("http://127.0.0.1:9", timeout_s=SOON_S, token=None, transport=opened, sleep=lambda _: None)
    with pytest.raises(Unreachable, match=r"^this client is busy, none of its 1 connections was free") as busy:
        http.call("GET", "/healthz")
    assert not busy.value.sent
    with serving(saying(OK)) as server:
        assert opened.send(asked(server.url, waits=True)).status == 200, "which is beyond the limit"
    opened._end(None, waits=False)
    assert (opened._under_way, list(opened._queued)) == (0, [])


# ---------------------------------------------------------------- it may have arrived

CUT = [OK[:cut] for cut in (1, 9, 17, 30, -1)]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
NO_HTTP = [
    b"SSH-2.0-x\r\n",
    b"\x15\x03\x01\x00\x02",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 ok\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno field\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\na: " + bytes([97]) * (HEAD_BYTES_MAX + 1),
    CHUNKED + b"x\r\n",
    CHUNKED + b"-1\r\n",
    CHUNKED + b"1\r\nab\r\n",
    CHUNKED + b"1" * 2000,
]


@pytest.mark.parametrize("answer", [*CUT, CHUNKED, CHUNKED + b"2\r\no", CHUNKED + b"2\r\nok\r\n", *NO_HTTP])
def test_an_answer_that_ends_too_soon_or_is_none_is_lost(opened: Connections, answer: bytes) -> None:
    with serving(saying(answer)) as server, pytest.raises(LostError):
        opened.send(asked(server.url, "POST", b"x"))
    assert (opened._idle, opened._busy, opened._under_way) == ([], set(), 0)


@pytest.mark.parametrize("answer", NO_HTTP)
def test_what_is_no_http_is_known_before_the_other_side_ends_it(opened: Connections, answer: bytes) -> None:
    def act(taken: socket.socket) -> None:
        read(taken)
        taken.sendall(answer)
        taken.recv(1)

    with serving(act) as server, pytest.raises(LostError):
        opened.send(asked(server.url, "POST", b"x"))


@pytest.mark.parametrize("act", [read, reset], ids=["closed", "reset"])
def test_a_connection_that_breaks_before_the_answer_is_lost(opened: Connections, act: Act) -> None:
    with serving(act) as server, pytest.raises(LostError):
        opened.send(asked(server.url, "POST", b"x"))


def test_a_kept_connection_that_breaks_under_a_request_is_lost_and_not_asked_again(opened: Connections) -> None:
    def act(taken: socket.socket) -> None:
        saying(OK)(taken)
        read(taken)

    with serving(act, saying(OK)) as server:
        opened.send(asked(server.url))
        with pytest.raises(LostError):
            opened.send(asked(server.url, "POST", b"x"))
        assert server.accepted == 1


@pytest.mark.parametrize(("act", "body"), [(held, b"x"), (unread, bytes(64 << 20))], ids=["no answer", "not read"])
def test_where_nothing_moves_it_is_silent(opened: Connections, act: Act, body: bytes) -> None:
    with serving(act) as server, pytest.raises(SilentError):
        opened.send(asked(server.url, "POST", body, SOON_S))
    assert (opened._idle, opened._busy) == ([], set())


# ---------------------------------------------------------------- answers

ANSWERS = [
    (OK, b"ok", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\n" + OK, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    (b"HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", b"", True),
    (b"HTTP/1.1 307 Elsewhere\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n", b"", True),
    (b"HTTP/1.1 101 Other\r\n\r\n", b"", False),
    (b"HTTP/1.1 200\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nok", b"ok", False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok", False),
    (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", b"ok", True),
    (b"HTTP/1.1 200 OK\r\n\r\nall of it", b"all of it", False),
    (OK + b"HTTP/1.1 200 more", b"ok", False),
    (CHUNKED + b"2;a=b\r\nok\r\n0A\r\n0123456789\r\n0\r\n\r\n", b"ok0123456789", True),
    (CHUNKED.replace(b"chunked", b"Chunked") + b"0\r\nx: y\r\n\r\n", b"", True),
]


@pytest.mark.parametrize(("answer", "body", "kept"), ANSWERS)
def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, body: bytes, kept: bool) -> None:
    """In one piece, byte by byte, and in two at each place."""
    cuts = [[answer], [bytes([byte]) for byte in answer], *([answer[:at], answer[at:]] for at in range(1, len(answer)))]
    for pieces in cuts:
        made = connection(Scripted(*pieces))
        found = made.ask(asked(URL))
        assert found.body == body
        if b"more" not in answer or len(pieces) == 1:  # what comes later is found before the next request
            assert made.is_free == kept, pieces
        assert found.headers == {name.lower(): value for name, value in found.headers.items()}


def test_an_answer_to_head_has_no_body() -> None:
    made = connection(Scripted(OK[:-2]))
    assert made.ask(asked(URL, "HEAD")).body == b""
    assert made.is_free


def test_head_and_body_are_written_together_and_the_rest_of_a_large_one_behind_it() -> None:
    for size in (0, 10, 5_000):
        script = Scripted(OK)
        connection(script).ask(asked(URL, "POST", bytes(size)))
        head, _, body = b"".join(script.sent).partition(b"\r\n\r\n")
        lines = [b"POST /at/v1/x HTTP/1.1", b"accept: a/b", b"host: h", b"content-length: %d" % size]
        assert (head.split(b"\r\n"), body) == (lines, bytes(size))
        assert len(script.sent) == 1 + (len(head) + 4 + size) // 1000
    script = Scripted(OK)
    connection(script).ask(asked(URL, "PUT"))
    assert b"content-length: 0" in script.sent[0], "for proxies that want one"


def test_the_answer_of_who_refuses_a_body_is_read_all_the_same() -> None:
    made = connection(Scripted(OK.replace(b"200 OK", b"413 Large"), refuses=True))
    assert made.ask(asked(URL, "POST", bytes(5_000))).status == 413
    assert not made.is_free
    with pytest.raises(LostError):
        connection(Scripted(ConnectionResetError(), refuses=True)).ask(asked(URL, "POST", bytes(5_000)))


@pytest.mark.parametrize(
    ("url", "head"),
    [
        ("http://127.0.0.1:{}", "host: 127.0.0.1:{}"),
        ("http://ann:s%40fe@127.0.0.1:{}/jqd", "host: 127.0.0.1:{}\r\nauthorization: Basic YW5uOnNAZmU="),
    ],
)
def test_a_proxy_before_the_daemon_has_its_path_and_its_password(opened: Connections, url: str, head: str) -> None:
    seen: list[bytes] = []

    def act(taken: socket.socket) -> None:
        seen.append(read(taken))
        taken.sendall(OK)

    with serving(act) as server:
        port = server.url.rpartition(":")[2]
        opened.send(asked(url.format(port)))
        base = "/jqd" if "jqd" in url else ""
        assert seen[0].decode() == f"GET {base}/v1/x HTTP/1.1\r\naccept: a/b\r\n{head.format(port)}\r\n\r\n"


def test_errors_of_connections_are_three() -> None:
    assert set(TransportError.__subclasses__()) == {UnreachedError, SilentError, LostError}
