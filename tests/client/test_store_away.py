"""A push to several daemons while the store is away, which alone knows whose an id is: it goes on without an id where
no daemon may have taken it, and nowhere else."""

from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import Client, JqdClientError, TimedOut, Unavailable, Unreachable
from jqd.domain.errors import IdsUnknown

TWO = "http://one.test:1,http://two.test:2"
TYPE = {"content-type": "application/msgpack"}


def told(status: int, **body: Any) -> httpx2.Response:
    return httpx2.Response(status, content=msgspec.msgpack.encode(body), headers=TYPE)


def away() -> httpx2.Response:
    return told(503, detail="the store does not answer", type=IdsUnknown.problem)


class Wire:
    """Answers in order, and keeps what was sent where."""

    def __init__(self, *acts: Exception | httpx2.Response) -> None:
        self.acts = list(acts)
        self.sent: list[tuple[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append((str(request.url.host), msgspec.msgpack.decode(request.content)))
        act = self.acts.pop(0)
        if isinstance(act, Exception):
            raise act
        return act

    def client(self, urls: str = TWO) -> Client:
        return Client(urls, transport=httpx2.MockTransport(self))


@pytest.mark.parametrize(
    "before", [away, lambda: httpx2.ConnectError("refused"), lambda: httpx2.ConnectTimeout("slow")]
)
def test_it_goes_to_one_daemon_without_an_id_where_none_may_have_taken_it(before: Any) -> None:
    wire = Wire(before(), away(), told(201, job_id="theirs", ack="fsync"))
    with wire.client() as client:
        assert client.push("mail", 1) == "theirs"
    assert [host for host, _ in wire.sent] == ["one.test", "two.test", "two.test"]
    assert [set(body) for _, body in wire.sent] == [{"name", "argument", "job_id"}] * 2 + [{"name", "argument"}]


@pytest.mark.parametrize(
    "before",
    [
        httpx2.ReadError("reset"),
        httpx2.ReadTimeout("slow"),
        told(503, detail="the jobs are in the journal, but the store could not confirm their ids"),
    ],
    ids=["broken", "slow", "unconfirmed"],
)
def test_where_a_daemon_may_have_taken_it_it_keeps_its_id_and_is_refused(before: Any) -> None:
    wire = Wire(before, away())
    with wire.client() as client, pytest.raises(Unavailable) as caught:
        client.push("mail", 1)
    assert not caught.value.ids_unknown
    assert [body["job_id"] for _, body in wire.sent] == [wire.sent[0][1]["job_id"]] * 2


def test_where_the_daemon_said_that_it_is_taking_this_very_push_it_keeps_its_id() -> None:
    wire = Wire(httpx2.ReadTimeout("slow"), told(409, detail="promised"), away(), away())
    with wire.client() as client, pytest.raises(Unavailable):
        client.push("mail", 1)
    assert len({body["job_id"] for _, body in wire.sent}) == 1


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (httpx2.ReadError("reset"), Unreachable),
        (httpx2.ReadTimeout("slow"), TimedOut),
        (told(503, detail="the disk"), Unavailable),
    ],
    ids=["broken", "slow", "refused"],
)
def test_without_an_id_it_is_sent_once(act: Any, error: type[JqdClientError]) -> None:
    wire = Wire(away(), away(), act)
    with wire.client() as client, pytest.raises(error):
        client.push("mail", 1)
    assert ["job_id" in body for _, body in wire.sent] == [True, True, False]


def test_what_was_not_sent_goes_to_the_other_one() -> None:
    wire = Wire(away(), away(), httpx2.ConnectError("refused"), told(201, job_id="theirs", ack="fsync"))
    with wire.client() as client:
        assert client.push("mail") == "theirs"
    assert [host for host, _ in wire.sent] == ["one.test", "two.test", "two.test", "one.test"]


def test_a_list_goes_on_as_well_and_one_with_an_id_of_its_pusher_does_not() -> None:
    wire = Wire(away(), away(), told(201, job_ids=["a", "b"], ack="fsync"))
    with wire.client() as client:
        assert client.push_many([{"name": "mail", "argument": 1}, {"name": "mail"}]) == ["a", "b"]
    assert wire.sent[-1][1] == [{"name": "mail", "argument": 1}, {"name": "mail"}]
    wire = Wire(*[away() for _ in range(8)])
    with wire.client() as client:
        with pytest.raises(Unavailable) as caught:
            client.push_many([{"name": "mail", "job_id": "mine"}, {"name": "mail"}])
        assert caught.value.ids_unknown
        with pytest.raises(Unavailable):
            client.push("mail", job_id="mine")
    assert len(wire.sent) == 4
