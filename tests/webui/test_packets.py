"""What a stranger sends before any page is reached ends his connection at most: never the UI, nor its log's peace."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.webui.conftest import NOBODY, UiProcess

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SOCKET = b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
RESETS = 1_100  # more than hypercorn's tree of streams holds
HELD = 950  # fewer


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def headers(stream: int, path: bytes = b"/login") -> bytes:
    """A GET, as HPACK writes it without a table."""
    fields = b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path))
    )
    return frame(1, 5, stream, fields)


def priority(stream: int, *, on: int) -> bytes:
    return frame(2, 0, stream, on.to_bytes(4, "big") + b"\x10")


PACKETS = {
    "a key of a WebSocket that is no ASCII": SOCKET
    + b"Sec-WebSocket-Key: \xff\r\nSec-WebSocket-Protocol: \xff\r\n\r\n",
    "a WebSocket": SOCKET + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "a path of HTTP/2 that is no ASCII": PREFACE + headers(1, b"/\xff\xfe"),
    "more priorities than streams": PREFACE + b"".join(priority(stream, on=0) for stream in range(1, 2 * RESETS, 2)),
    "priorities that hang on each other in a circle": PREFACE
    + b"".join(priority(stream, on=max(stream - 2, 0)) for stream in range(1, 2 * HELD, 2))
    + b"".join(priority(1, on=stream) for stream in range(3, HELD, 2)),
    "streams that are reset at once": PREFACE
    + b"".join(headers(stream) + frame(3, 0, stream, b"\x00\x00\x00\x08") for stream in range(1, 2 * RESETS, 2)),
    "settings that are none": b"GET /login HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAT/////\r\n\r\n",
    "a URL that is none": b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiProcess]:
    log = tmp_path_factory.mktemp("packets") / "ui.log"
    with UiProcess(log, "--url", NOBODY) as ui:
        yield ui
        assert ui.stop() == 0
    assert Path(log).read_text() == ""


@pytest.mark.parametrize("what", PACKETS)
def test_no_packet_of_one_connection_ends_the_others(ui: UiProcess, what: str) -> None:
    place = urlsplit(ui.url)
    at = place.hostname or "", place.port or 80
    with socket.create_connection(at, timeout=60) as stranger, suppress(ConnectionError):  # before it has said all
        stranger.sendall(PACKETS[what])
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65_536):
            continue
    assert httpx2.get(f"{ui.url}/login", timeout=20).status_code == 200


def test_who_asks_nothing_is_cut_off(ui: UiProcess) -> None:
    place = urlsplit(ui.url)
    with socket.create_connection((place.hostname or "", place.port or 80), timeout=40) as silent:
        silent.sendall(b"GET /login HT")
        assert silent.recv(1) == b"", "long before one that was kept for its next request would be"
