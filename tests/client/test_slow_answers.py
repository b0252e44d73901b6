"""What moves a byte now and then is never silent: the whole of an exchange has an end all the same."""

from itertools import repeat

import pytest

from jqd.client import http1
from jqd.client.http1 import BYTES_S_MIN
from jqd.client.transport import LostError, SilentError
from tests.client.served import OK, asked
from tests.client.sockets import URL, Piece, Scripted, connection

READ_S = 10.0
SOON_S = 9.0  # within the time of a silence
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def slowly(piece: bytes) -> list[Piece]:
    """Pieces for hours, but not without an end: a test that fails should do so."""
    return [each for _ in range(1_000) for each in (SOON_S, piece)]


def seconds_until_silent(script: Scripted, body: bytes = b"x", *, streams: bool = False) -> float:
    began_s = script.clock.mono_s()
    with pytest.raises(SilentError):
        connection(script).ask(asked(URL, "POST", body, READ_S, streams=streams))
    return script.clock.mono_s() - began_s


OTHER = b"HTTP/1.1 102 Processing\r\n\r\n"
HEADS = [(OTHER, OTHER), (HEAD, b"a: b\r\n")]
BODIES = [
    (HEAD + b"content-length: 1000\r\n\r\n", b"a"),
    (HEAD + b"\r\n", b"a"),
    (CHUNKED, b"1\r\na\r\n"),
    (CHUNKED, b"0"),
    (CHUNKED + b"0\r\n", b"a: b\r\n"),
]


@pytest.mark.parametrize(("begins", "goes_on"), HEADS + BODIES)
@pytest.mark.parametrize("is_refused_stream", [False, True])
def test_an_answer_that_comes_byte_by_byte_is_silent_in_the_end(
    begins: bytes, goes_on: bytes, is_refused_stream: bool
) -> None:
    """A push went on for ever, if what it was sent to sent a byte or a `102` now and then."""
    begins = begins.replace(b"200 OK", b"503 Full") if is_refused_stream else begins
    took_s = seconds_until_silent(Scripted(begins, more=slowly(goes_on)), streams=is_refused_stream)
    assert took_s == pytest.approx(READ_S, abs=0.1)


@pytest.mark.parametrize(("begins", "goes_on"), HEADS)
def test_so_is_a_stream_that_does_not_begin(begins: bytes, goes_on: bytes) -> None:
    assert seconds_until_silent(Scripted(begins, more=slowly(goes_on)), streams=True) == pytest.approx(READ_S, abs=0.1)


@pytest.mark.parametrize(("begins", "goes_on"), BODIES[:3])
def test_a_stream_that_has_begun_goes_on_as_long_as_it_is_not_silent(begins: bytes, goes_on: bytes) -> None:
    script = Scripted(begins, more=[*slowly(goes_on)[:200], READ_S])
    pieces = connection(script).ask(asked(URL, read_s=READ_S, streams=True)).pieces
    assert pieces is not None
    assert b"".join(next(pieces) for _ in range(100)) == b"a" * 100
    with pytest.raises(SilentError):
        next(pieces)


def test_who_takes_a_request_byte_by_byte_is_silent_in_the_end() -> None:
    took_s = seconds_until_silent(Scripted(OK, takes=1, each_s=SOON_S), bytes(5_000))
    assert took_s == pytest.approx(READ_S, abs=0.1)


def test_on_a_slow_network_much_takes_its_time() -> None:
    size, piece = 4 << 20, 1 << 10
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    each_s = 0.9 * piece / BYTES_S_MIN
    script = Scripted(head, more=[each_s, bytes(piece)] * (size // piece), takes=piece, each_s=each_s)
    began_s = script.clock.mono_s()
    assert len(connection(script).ask(asked(URL, "POST", bytes(size), READ_S)).body) == size
    assert script.clock.mono_s() - began_s > 10 * READ_S


def test_who_has_taken_much_is_no_longer_silent_than_others() -> None:
    script = Scripted(READ_S, takes=1 << 30)
    assert seconds_until_silent(script, bytes(4 << 20)) == READ_S


def test_the_next_request_has_its_whole_time_again() -> None:
    script = Scripted(OK[:20], SOON_S, OK[20:30], OK[30:], SOON_S, OK)
    made = connection(script)
    for _ in range(2):
        assert made.ask(asked(URL, read_s=READ_S)).body == b"ok"
    assert script.timeouts[0] == script.timeouts[-1] == READ_S
    assert READ_S - SOON_S < script.timeouts[1] < READ_S - SOON_S + 0.1


def test_an_answer_without_an_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "ANSWER_BYTES_MAX", 1_000_000)
    with pytest.raises(LostError, match="an answer of more than 1000000 bytes"):
        connection(Scripted(HEAD + b"\r\n", more=repeat(bytes(1 << 16)))).ask(asked(URL))
    pieces = connection(Scripted(HEAD + b"\r\n", more=repeat(bytes(1 << 16)))).ask(asked(URL, streams=True)).pieces
    assert pieces is not None
    assert sum(len(next(pieces)) for _ in range(20)) > 1_000_000
