"""The events of a job as a client gives them: in one piece, however often the stream breaks."""

import httpx2
import pytest

from jqd.client import Client, JobEvent, NotFound, Unavailable, Unreachable
from jqd.client.http import TRIES_MAX
from tests.harness.handled import Handled

Answers = list[httpx2.Response | Exception]


def stream(*blocks: str) -> httpx2.Response:
    body = "retry: 2000\n\n: still here\n\n" + "".join(f"{block}\n\n" for block in blocks)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())


def client_of(answers: Answers, asked: list[tuple[str, str]], urls: str = "http://one,http://two") -> Client:
    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.host, request.headers.get("last-event-id", "")))
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    client = Client(urls, transport=Handled(answer))
    client._http._sleep = lambda _: None
    return client


def test_it_goes_on_at_another_daemon_from_the_last_event() -> None:
    asked: list[tuple[str, str]] = []
    answers: Answers = [
        stream('event: state\nid: a\ndata: {"state":"running"}', 'event: log\nid: b\ndata: {"lines":["one"]}'),
        httpx2.ConnectError("nobody"),
        stream('event: end\ndata: {"reason":"draining","reconnect":true}'),
        stream(
            'event: log\nid: c\ndata: {"lines":["two"]}',
            'event: end\nid: end\ndata: {"reason":"ended","reconnect":false}',
        ),
    ]
    with client_of(answers, asked) as client:
        heard = list(client.events("J"))
    assert heard == [
        JobEvent("state", {"state": "running"}),
        JobEvent("log", {"lines": ["one"]}),
        JobEvent("log", {"lines": ["two"]}),
        JobEvent("end", {"reason": "ended", "reconnect": False}),
    ]
    assert asked == [("one", ""), ("two", "b"), ("one", "b"), ("two", "b")]


def test_it_gives_up_when_no_daemon_answers_or_there_is_no_such_job() -> None:
    asked: list[tuple[str, str]] = []
    nobody: Answers = [httpx2.ConnectError("nobody") for _ in range(99)]
    with client_of(nobody, asked, "http://one") as client, pytest.raises(Unreachable):
        list(client.events("J"))
    assert len(asked) == TRIES_MAX + 1
    for status, error in ((404, NotFound), (503, Unavailable)):
        kind = {"content-type": "application/problem+json"}
        refused: Answers = [httpx2.Response(status, json={"detail": "no"}, headers=kind) for _ in range(9)]
        with client_of(refused, [], "http://one") as client, pytest.raises(error):
            list(client.events("J"))


def test_closed_it_ends() -> None:
    with client_of([stream('event: state\nid: a\ndata: {"state":"running"}')], []) as client:
        events = client.events("J")
        assert next(events).kind == "state"
        events.close()
        assert list(events) == []
