"""The client over many jobs: what it asks, and answers a real daemon gives rarely."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import Changed, Client, Conflict, JqdClientError, NotFound, Unreachable, manage
from tests.harness.handled import Handled

JOB = {"job_id": "a", "name": "mail", "state": "waiting"}


class Script:
    """Answers in turn, and what was asked."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.msgpack.decode(request.content) if request.content else None
        path = request.url.raw_path.decode().partition("?")[0]
        self.asked.append((request.method, path, dict(request.url.params), body))
        status, told = self.answers.pop(0)
        return httpx2.Response(
            status, content=msgspec.msgpack.encode(told), headers={"content-type": "application/msgpack"}
        )

    def client(self) -> Client:
        return Client("http://d", transport=Handled(self))


def test_jobs_come_page_by_page_and_no_more_than_wanted() -> None:
    page = [{**JOB, "job_id": str(n)} for n in range(500)]
    more = [{**JOB, "job_id": str(n)} for n in range(500, 600)]
    script = Script((200, {"jobs": page, "cursor": "c1"}), (200, {"jobs": more, "cursor": "c2"}))
    assert len(list(script.client().jobs(state="waiting", limit=600))) == 600
    assert [params for _, _, params, _ in script.asked] == [
        {"state": "waiting", "limit": "500"},
        {"state": "waiting", "limit": "100", "cursor": "c1"},
    ]


def test_a_job_that_moves_while_it_is_listed_comes_once() -> None:
    one, other, last = ({**JOB, "job_id": name} for name in ("one", "other", "last"))
    script = Script(
        (200, {"jobs": [one, other], "cursor": "c1"}),
        (200, {"jobs": [{**one, "state": "succeeded"}], "cursor": "c2"}),
        (200, {"jobs": [one, last], "cursor": ""}),
    )
    assert [info.job_id for info in script.client().jobs(limit=3)] == ["one", "other", "last"]
    assert [params["limit"] for _, _, params, _ in script.asked] == ["3", "1", "1"]


def test_of_a_long_walk_the_last_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage, "SEEN_JOBS", 2)
    pages = [[{**JOB, "job_id": name} for name in names] for names in ("ab", "bc", "ca")]
    script = Script(*[(200, {"jobs": page, "cursor": "more" if page is not pages[-1] else ""}) for page in pages])
    assert "".join(info.job_id for info in script.client().jobs()) == "abca", "what was seen long ago is forgotten"


def test_jobs_end_with_the_last_page() -> None:
    script = Script((200, {"jobs": [JOB], "cursor": "c1"}), (200, {"jobs": [], "cursor": ""}))
    assert [info.job_id for info in script.client().jobs()] == ["a"]
    assert list(Script().client().jobs(limit=0)) == []


def test_a_change_sends_what_was_given() -> None:
    script = Script(*[(200, JOB)] * 3)
    client = script.client()
    client.change("a/b", priority=-1, delay=timedelta(minutes=1))
    client.change("a", argument=None)
    assert client.change("a", run_at=datetime(2030, 1, 1, tzinfo=UTC)).state == "waiting"
    assert [(method, path, body) for method, path, _, body in script.asked] == [
        ("PATCH", "/v1/jobs/a%2Fb", {"priority": -1, "delay": 60.0}),
        ("PATCH", "/v1/jobs/a", {"argument": None}),
        ("PATCH", "/v1/jobs/a", {"run_at": "2030-01-01T00:00:00+00:00"}),
    ]


def test_many_are_changed_until_the_daemon_says_that_was_all() -> None:
    script = Script(
        (200, {"matched": 2, "changed": 1, "cursor": "x"}), (200, {"matched": 1, "changed": 1, "cursor": ""})
    )
    assert script.client().cancel_many(name="mail", job_ids=["a"]) == Changed(3, 2)
    assert script.asked[1][3] == {"name": "mail", "job_ids": ["a"], "cursor": "x"}


def test_of_many_no_more_are_changed_than_were_counted() -> None:
    at = "2026-01-31T12:00:00Z"
    script = Script(
        (200, {"matched": 2, "changed": 0, "cursor": "x", "at": at}),
        (200, {"matched": 1, "changed": 0, "cursor": "", "at": "2026-01-31T12:00:01Z"}),
        (200, {"matched": 2, "changed": 2, "cursor": "x"}),
        (200, {"matched": 1, "changed": 1, "cursor": ""}),
    )
    client = script.client()
    counted = client.cancel_many(name="mail", dry_run=True)
    assert (counted.matched, counted.at) == (3, at)
    assert client.cancel_many(name="mail", counted=counted) == Changed(3, 3)
    bound = {"name": "mail", "before": at}
    assert [asked[3] for asked in script.asked[2:]] == [
        {**bound, "matched_max": 3},
        {**bound, "matched_max": 1, "cursor": "x"},
    ]


def test_a_count_of_none_lets_none_be_changed() -> None:
    script = Script((200, {"matched": 0, "changed": 0, "cursor": ""}))
    script.client().delete_many(name="mail", counted=Changed(0, 0, at="2026-01-31T12:00:00Z"))
    assert script.asked[0][3] == {"name": "mail", "before": "2026-01-31T12:00:00Z", "matched_max": 0}


@pytest.mark.parametrize(
    ("act", "times"),
    [
        (lambda client: client.cancel_many(name="mail"), 2),
        (lambda client: client.retry_many(name="mail"), 1),
        (lambda client: client.cancel_flow("a"), 2),
        (lambda client: client.retry_flow("a"), 1),
        (lambda client: client.retry_flow("a", dry_run=True), 2),
        (lambda client: client.cancel_group("play"), 2),
        (lambda client: client.retry_group("play"), 1),
        (lambda client: client.retry_group("play", dry_run=True), 2),
    ],
)
def test_a_retry_of_many_whose_answer_is_lost_is_not_sent_again(act: Callable[[Client], Changed], times: int) -> None:
    """What it had tried anew and had failed again ran once more, and the changes of the first were counted nowhere."""
    asked = list[httpx2.Request]()

    def lose(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        if len(asked) > 1:
            return httpx2.Response(200, json={"matched": 0, "changed": 0})
        raise httpx2.ReadError("reset")

    client = Client("http://one, http://two", transport=Handled(lose))
    with suppress(Unreachable):
        act(client)
    assert len(asked) == times


@pytest.mark.parametrize("call", ["jobs", "errors", "cancel_many", "retry_many", "delete_many"])
def test_a_word_that_is_misspelled_chooses_nothing(call: str) -> None:
    """Without it all jobs would match, and all of them be deleted."""
    script = Script()
    with pytest.raises(TypeError, match="'stat' is nothing that jobs are chosen by; there are state, name, tag, "):
        list(getattr(script.client(), call)(stat="failed"))
    assert not script.asked


def test_clean_takes_a_date_or_an_age() -> None:
    script = Script(*[(200, {"matched": 0, "changed": 0})] * 2)
    client = script.client()
    client.clean(datetime(2030, 1, 1, tzinfo=UTC), dry_run=True)
    assert script.asked[0][3] == {"before": 1_893_456_000.0, "dry_run": True}
    client.clean(timedelta(days=1))
    assert script.asked[1][3]["before"] < datetime.now(UTC).timestamp()
    with pytest.raises(ValueError, match="no time zone"):
        client.clean(datetime(2030, 1, 1))


@pytest.mark.parametrize(
    ("status", "error", "call"),
    [
        (404, NotFound, lambda client: client.retry("a")),
        (409, Conflict, lambda client: client.run_now("a")),
        (409, Conflict, lambda client: client.delete("a")),
    ],
)
def test_what_cannot_be_done_has_its_error(
    status: int, error: type[Exception], call: Callable[[Client], object]
) -> None:
    script = Script((status, {"detail": "no"}))
    with pytest.raises(error, match="no"):
        call(script.client())


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.types(),
        lambda client: client.daemons(),
        lambda client: list(client.jobs()),
        lambda client: client.retry("a"),
        lambda client: client.cancel_many(name="x"),
    ],
)
@pytest.mark.parametrize("told", [None, [1], "text"])
def test_an_answer_that_is_none_is_said(told: Any, call: Callable[[Client], object]) -> None:
    with pytest.raises(JqdClientError, match=r"jqd daemon\?|not understood"):
        call(Script((200, told)).client())


def test_rows_that_are_none() -> None:
    with pytest.raises(JqdClientError, match=r"jqd daemon\?"):
        Script((200, {"types": 3})).client().types()
