"""A daemon whose answers are written down, for tests of commands."""

from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import http
from tests.harness.handled import Handled

JOB: dict[str, Any] = {
    "job_id": "order/7",
    "id": "01MCC5RM000000000000070001",
    "name": "mail",
    "state": "failed",
    "attempts": 3,
    "created_at": "2027-01-15T08:00:00.000Z",
    "finished_at": "2027-01-15T08:00:09.000Z",
    "message": "Traceback …\nValueError: no such address",
}


class Script:
    """A daemon whose answers are written down; it notes what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, Any]] = []

    def on(self, method: str, path: str, status: int = 200, body: Any = None) -> None:
        self.answers.setdefault((method, path), []).append((status, body))

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.msgpack.decode(request.content) if request.content else dict(request.url.params)
        path = request.url.raw_path.decode().partition("?")[0]
        self.asked.append((request.method, path, body))
        listed = self.answers.get((request.method, path), [(404, {"detail": "there is no such job"})])
        status, told = listed.pop(0) if len(listed) > 1 else listed[0]
        return httpx2.Response(
            status, content=msgspec.msgpack.encode(told), headers={"content-type": "application/msgpack"}
        )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    script = Script()
    real = http.Http.__init__

    def scripted(self: http.Http, url: str, **given: Any) -> None:
        real(self, url, **{**given, "transport": Handled(script)})

    monkeypatch.setattr(http.Http, "__init__", scripted)
    yield script
    assert script.asked, "the daemon was not asked"


def out(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed since."""
    return capsys.readouterr().out.strip()
