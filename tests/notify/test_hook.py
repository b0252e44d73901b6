"""The web hook: which answers mean what, and where it never goes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from jqd.notify import hook as hooks
from jqd.notify.config import NotifyConfig
from jqd.notify.hook import HookSender
from jqd.notify.rule import Fate
from jqd.testing.clock import ManualClock
from tests.notify.server import free_port
from tests.notify.test_mail import answering, notice


def sender(url: str, **fields: Any) -> HookSender:
    return HookSender(NotifyConfig(hook_url=url, **fields), ManualClock())


paths: list[str] = []
"""Paths with their queries that hooks were asked for."""


@contextmanager
def hook(status: int, **headers: str) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Its URL, and what it was asked; it answers so."""
    asked: list[tuple[dict[str, str], bytes]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            asked.append(({key.lower(): value for key, value in self.headers.items()}, body))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (200, Fate.SENT),
        (204, Fate.SENT),
        (302, Fate.REFUSED),
        (400, Fate.REFUSED),
        (404, Fate.REFUSED),
        (410, Fate.REFUSED),
        (408, Fate.LATER),
        (429, Fate.LATER),
        (500, Fate.LATER),
        (503, Fate.LATER),
    ],
)
async def test_what_an_answer_means(status: int, fate: Fate) -> None:
    with hook(status, Location="http://127.0.0.1:1/") as (url, asked):
        result = await sender(url).send(notice())
    assert (result.fate, len(asked)) == (fate, 1)
    assert (fate is Fate.SENT) == (not result.trouble)
    assert "/hook" not in result.trouble, "its path may be what opens it"


async def test_a_query_is_sent_and_never_told() -> None:
    """Services that give out hooks sign their URLs so."""
    with hook(403) as (url, _):
        result = await sender(f"{url}?api=1&sig=a-B_%2F?=").send(notice())
    assert paths[-1] == "/hook?api=1&sig=a-B_%2F?="
    assert result.fate is Fate.REFUSED
    assert "sig" not in result.trouble
    result = await sender(f"http://127.0.0.1:{free_port()}/?sig=secret").send(notice())
    assert result.fate is Fate.LATER
    assert "secret" not in result.trouble


async def test_the_same_notice_has_the_same_id_and_body() -> None:
    with hook(503) as (url, asked):
        one = sender(url)
        await one.send(notice())
        await one.send(notice())
    (first, told), (second, told_again) = asked
    assert (first["webhook-id"], told) == (second["webhook-id"], told_again)
    assert "webhook-signature" not in first


async def test_nobody_is_there() -> None:
    result = await sender(f"http://127.0.0.1:{free_port()}/").send(notice())
    assert (result.fate, "is not reached" in result.trouble) == (Fate.LATER, True)


@pytest.mark.parametrize("host", ["169.254.169.254", "100.100.100.200", "[fe80::1]"])
async def test_clouds_metadata_is_never_asked(host: str) -> None:
    result = await sender(f"http://{host}/latest").send(notice())
    assert (result.fate, "not connected to" in result.trouble) == (Fate.LATER, True)


async def test_one_that_breaks_or_is_silent_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "SEND_S", 0.3)
    with answering() as port:
        result = await sender(f"http://127.0.0.1:{port}/").send(notice())
        assert (result.fate, "does not answer" in result.trouble) == (Fate.UNKNOWN, True)
    with answering(b"no HTTP\r\n\r\n") as port:
        assert (await sender(f"http://127.0.0.1:{port}/").send(notice())).fate is Fate.UNKNOWN
