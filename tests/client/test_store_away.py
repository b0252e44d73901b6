"""A push to several daemons while the store is away, which alone knows whose an id is: it goes on without an id where
no daemon may have taken it, and nowhere else."""

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import (
    AsyncClient,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    JqdClientError,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
)
from jqd.client.job_info import PushedJob
from jqd.domain.errors import Closed, IdsUnknown
from tests.harness.handled import Handled

ONE = "http://one.test:1"
TWO = "http://one.test:1,http://two.test:2"
Act = Callable[[], Exception | httpx2.Response]
TYPE = {"content-type": "application/msgpack"}


def told(status: int, **body: Any) -> httpx2.Response:
    return httpx2.Response(status, content=msgspec.msgpack.encode(body), headers=TYPE)


def away() -> httpx2.Response:
    return told(503, detail="the store does not answer", type=IdsUnknown.problem)


def busy() -> httpx2.Response:
    return told(429, detail="too much waits already")


def closed() -> httpx2.Response:
    return told(503, detail="this daemon is shutting down", type=Closed.problem)


class Wire:
    """Answers in order, and keeps what was sent where."""

    def __init__(self, *acts: Exception | httpx2.Response) -> None:
        self.acts = list(acts)
        self.sent: list[tuple[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append((str(request.url.host), msgspec.msgpack.decode(request.content) if request.content else None))
        act = self.acts.pop(0)
        if isinstance(act, Exception):
            raise act
        return act

    def client(self, urls: str = TWO) -> Client:
        """One that tries again at once."""
        client = Client(urls, transport=Handled(self))
        client._http._sleep = lambda _: None
        return client


@pytest.mark.parametrize(
    "before", [away, busy, closed, lambda: httpx2.ConnectError("refused"), lambda: httpx2.ConnectTimeout("slow")]
)
def test_it_goes_to_one_daemon_without_an_id_where_none_may_have_taken_it(before: Any) -> None:
    wire = Wire(before(), away(), told(201, job_id="theirs", ack="fsync"))
    with wire.client() as client:
        assert client.push("mail", 1) == "theirs"
    assert [host for host, _ in wire.sent] == ["one.test", "two.test", "two.test"]
    assert [set(body) for _, body in wire.sent] == [{"name", "argument", "job_id"}] * 2 + [{"name", "argument"}]


@pytest.mark.parametrize("after", [busy, closed, lambda: httpx2.ConnectError("refused")])
def test_so_it_does_whichever_daemon_says_that_it_takes_no_ids(after: Any) -> None:
    """The last one asked takes nothing at all; one before it does, without an id."""
    others = 1 if isinstance(after(), httpx2.Response) else 7
    wire = Wire(away(), *[after() for _ in range(others + 1)], told(201, job_id="theirs", ack="fsync"))
    with wire.client() as client:
        assert client.push("mail", 1) == "theirs"
    assert not wire.acts
    assert "job_id" not in wire.sent[-1][1]


def unconfirmed() -> httpx2.Response:
    return told(503, detail="the jobs are in the journal, but the store could not confirm their ids")


def promised() -> httpx2.Response:
    return told(409, detail="another push of that id came first")


def broken() -> Exception:
    return httpx2.ReadError("reset")


def slow() -> Exception:
    return httpx2.ReadTimeout("slow")


def unsent() -> Exception:
    return httpx2.ConnectError("refused")


def says_maybe(error: JqdClientError) -> bool:
    """Whether it tells a program that the push may have been taken."""
    match error:
        case Unreachable():
            return error.sent
        case Unavailable():
            return error.maybe_taken and not error.ids_unknown
    return isinstance(error, TimedOut)


@pytest.mark.parametrize(
    ("acts", "error"),
    [
        ([broken, away], Unreachable),
        ([slow, away], TimedOut),
        ([slow, unsent, away], TimedOut),
        ([slow, busy], TimedOut),
        ([slow, closed], TimedOut),
        ([unconfirmed, closed], Unavailable),
        ([slow, unconfirmed], TimedOut),
        ([broken, *[unsent] * 7], Unreachable),
        ([slow, *[unsent] * 7], TimedOut),
        ([unconfirmed, away], Unavailable),
        ([away, unconfirmed], Unavailable),
        ([unconfirmed, *[unsent] * 7], Unavailable),
    ],
)
def test_where_a_daemon_may_have_taken_it_it_keeps_its_id_and_the_error_says_so(
    acts: list[Act], error: type[JqdClientError]
) -> None:
    pushes: list[Callable[[Client], Any]] = [
        lambda client: client.push("mail", 1),
        lambda client: client.push_many([{"name": "mail"}, {"name": "mail"}]),
    ]
    for push in pushes:
        wire = Wire(*[act() for act in acts])
        with wire.client() as client, pytest.raises(error) as caught:
            push(client)
        assert says_maybe(caught.value)
        assert [body for _, body in wire.sent] == [wire.sent[0][1]] * len(acts)


async def test_the_async_client_says_so_as_well() -> None:
    client = AsyncClient(TWO)
    client.client.close()
    client.client = Wire(slow(), away()).client()
    async with client:
        with pytest.raises(TimedOut, match="may have taken"):
            await client.push("mail", 1)


@pytest.mark.parametrize("last", [[unsent] * 8, [away] * 2, [busy] * 2, [unconfirmed] * 2, [slow] * 2, [promised] * 3])
def test_where_the_daemon_said_that_it_is_taking_this_very_push_it_keeps_its_id(last: list[Act]) -> None:
    wire = Wire(slow(), promised(), *[act() for act in last])
    with wire.client() as client, pytest.raises(TimedOut, match="may have taken"):
        client.push("mail", 1)
    assert len({body["job_id"] for _, body in wire.sent}) == 1
    assert not wire.acts
    wire = Wire(slow(), promised(), *[act() for act in last])
    with wire.client() as client, pytest.raises(TimedOut, match="may have taken"):
        client.push_many([{"name": "mail"}, {"name": "mail"}])
    assert [body for _, body in wire.sent] == [wire.sent[0][1]] * len(wire.sent)
    assert not wire.acts


@pytest.mark.parametrize("refusal", [(413, TooLarge), (422, Invalid), (401, Forbidden), (403, Forbidden)])
def test_a_refusal_of_a_further_try_says_that_the_first_may_be_taken(refusal: tuple[int, type[JqdClientError]]) -> None:
    status, error = refusal
    for push in (lambda client: client.push("mail", 1), lambda client: client.push_all([{"name": "mail"}])):
        wire = Wire(slow(), promised(), told(status, detail="not here"))
        with wire.client() as client, pytest.raises(error, match=r"not here.* may have been taken") as caught:
            push(client)
        assert isinstance(caught.value.earlier, TimedOut)
        assert not wire.acts


def test_a_list_that_another_daemon_still_takes_is_sent_until_it_is_known() -> None:
    wire = Wire(slow(), promised())
    with wire.client() as client:
        wire.acts.append(told(200, job_ids=["a", "b"], duplicates=["a", "b"]))
        assert client.push_all([{"name": "mail"}, {"name": "mail"}]) == [PushedJob("a", False), PushedJob("b", False)]


def test_a_conflict_that_no_lost_answer_explains_is_raised_at_once() -> None:
    wire = Wire(*[told(409, detail="the group is closed") for _ in range(2)])
    with wire.client() as client:
        with pytest.raises(Conflict, match="the group is closed"):
            client.push("mail", 1, group="g")
        with pytest.raises(Conflict, match="the group is closed"):
            client.push_many([{"name": "mail", "group": "g"}])
    assert not wire.acts


@pytest.mark.parametrize("refusal", [(413, TooLarge), (422, Invalid), (401, Forbidden), (409, Conflict)])
@pytest.mark.parametrize("before", [slow, broken, unconfirmed])
def test_a_refusal_after_a_lost_answer_says_that_the_push_may_be_taken(
    before: Act, refusal: tuple[int, type[JqdClientError]]
) -> None:
    status, error = refusal
    wire = Wire(before(), told(status, detail="not here"))
    with (
        wire.client() as client,
        pytest.raises(error, match=r"not here.* an earlier try may have been taken: ") as caught,
    ):
        client.push("mail", 1, job_id="mine")
    assert caught.value.earlier is not None
    assert says_maybe(caught.value.earlier)
    wire = Wire(unsent(), told(status, detail="not here"))
    with wire.client() as client, pytest.raises(error, match="not here") as caught:
        client.push("mail", 1, job_id="mine")
    assert caught.value.earlier is None


@pytest.mark.parametrize("job", [{"job_id": "mine"}, {"unique": "key"}, {"group": "some"}], ids=str)
def test_what_the_store_has_to_confirm_may_be_taken_where_a_503_does_not_deny_it(job: dict[str, str]) -> None:
    for act, maybe in ((unconfirmed, True), (away, False), (busy, False), (closed, False)):
        with Wire(act()).client(ONE) as client, pytest.raises(Unavailable) as caught:
            client.push_one({"name": "mail", **job})
        assert caught.value.maybe_taken is maybe


def test_where_nothing_is_to_be_confirmed_and_in_a_look_a_503_is_told_as_it_is() -> None:
    with Wire(told(503, detail="it stops")).client(ONE) as client, pytest.raises(Unavailable) as caught:
        client.push("mail", 1)
    assert not caught.value.maybe_taken
    with Wire(slow(), told(503, detail="the store is away")).client() as client, pytest.raises(Unavailable):
        client.get("a")


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
