"""Connections that stay open for a next request keep nobody out."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.webui.conftest import NOBODY, UiProcess

FILES = 128  # that the UI may open
IDLE = 200
ANSWER_S = 20.0  # of a busy machine; an idle connection stays for 75 s


def test_connections_that_ask_once_and_stay_give_way_to_others_the_oldest_first(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
        try:
            ui = opened.enter_context(UiProcess(tmp_path / "ui.log", "--url", NOBODY))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        place, idle = urlsplit(ui.url), list[socket.socket]()
        for _ in range(IDLE):
            stays = socket.create_connection((place.hostname or "", place.port or 80), timeout=ANSWER_S)
            idle.append(opened.enter_context(stays))
            stays.sendall(b"GET /login HTTP/1.1\r\nhost: here\r\n\r\n")
            assert stays.recv(12).startswith(b"HTTP/1.1 ")
        assert httpx2.get(f"{ui.url}/login", timeout=ANSWER_S).status_code == 200
        oldest, newest = idle[0], idle[-1]
        while oldest.recv(65_536):
            continue
        newest.sendall(b"GET /login HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        answers = b""
        while part := newest.recv(65_536):
            answers += part
        assert answers.count(b"HTTP/1.1 ") == 1, "it was kept, and answered once more"
        assert ui.stop() == 0
    assert (tmp_path / "ui.log").read_text() == ""
