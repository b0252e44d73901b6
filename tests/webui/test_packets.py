"""What a stranger sends before any page is reached ends his connection at most: never the UI, nor its log's peace."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.webui.conftest import NOBODY, UiProcess

SOCKET = b"GET /login HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
PACKETS = {
    "a key of a WebSocket that is no ASCII": SOCKET
    + b"Sec-WebSocket-Key: \xff\r\nSec-WebSocket-Protocol: \xff\r\n\r\n",
    "a WebSocket": SOCKET + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "a path that is no ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    "a path that is no UTF-8": b"GET /%ff%fe HTTP/1.1\r\nHost: a\r\n\r\n",
    "a host that is no name": b"GET /login HTTP/1.1\r\nHost: [\r\n\r\n",
    "a URL that is none": b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a form without an end": b"POST /login HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Length: 99\r\n\r\ntoken=",
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
        assert silent.recv(65_536).startswith(b"HTTP/1.1 408 "), "long before one kept for its next request would be"
