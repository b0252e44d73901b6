"""GET /v1/events: what is told, to whom, and what becomes of those who do not listen."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.job import State
from jqd.domain.tokens import Role
from jqd.service.events import LISTENERS_MAX, TENANT_MAX
from jqd.service.principal import Principal
from jqd.service.waiters import QUEUE_MAX, UNNAMED_MAX, Listener
from tests.api.edge import Answer, Edge
from tests.api.whole import Whole

Events = list[tuple[str, dict[str, Any]]]
Meanwhile = Callable[[], Awaitable[None]]


@pytest.fixture
def edge() -> Edge:
    return Edge()


def row(event: str, job_id: str = "J", jobtype: str | None = "mail", **more: object) -> dict[str, object]:
    named = {} if jobtype is None else {"jobtype": jobtype}
    return {"ts": "2030-01-31T08:00:00.000+00:00", "event": event, "daemon": "d", "job_id": job_id, **named, **more}


def read(answer: Answer) -> Events:
    """What a listener was told, in order."""
    assert answer.raw.startswith(b"retry: 2000\n\n")
    blocks = answer.raw.decode().removeprefix("retry: 2000\n\n").split("\n\n")
    assert blocks.pop() == ""
    told = []
    for block in blocks:
        kind, data = block.split("\n")
        told.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return told


async def listen(
    edge: Edge, query: str, meanwhile: Meanwhile | None = None, seconds: float = 0.5, tenant: str = ""
) -> Events:
    """What is told in that time, which is the clock's own."""
    told: list[Answer] = []

    async def call() -> None:
        headers = {"jqd-tenant": tenant} if tenant else {}
        told.append(await edge.call("GET", f"/v1/events?seconds={seconds}&{query}", headers=headers))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        if meanwhile is not None:
            await meanwhile()
    (answer,) = told
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert "content-length" not in answer.headers
    assert (edge.control.ears, edge.api._parts.services.listeners) == ([], [])
    return read(answer)


async def test_counters_come_at_once_and_each_second(edge, autojump_clock):
    told = await listen(edge, "", seconds=2.5)
    assert [kind for kind, _ in told] == ["counters"] * 3
    assert told[0][1]["store"]["waiting"] == 1
    assert told[0][1]["daemon"] == "fake"
    edge.store.away = True
    ((_, away),) = await listen(edge, "")
    assert (away["store"], "does not answer" in away["store_error"]) == (None, True)
    assert await listen(edge, "counters=0", seconds=3) == []


ROWS = [
    row("entered"),
    row("started", "K"),
    row("ended", fate="succeeded"),
    row("entered", "L", "bill", tags=["a", "b"]),
]


@pytest.mark.parametrize(
    ("query", "heard"),
    [
        ("jobs=1", [0, 1, 2, 3]),
        ("name=mail", [0, 1, 2]),
        ("name=bill", [3]),
        ("event=entered", [0, 3]),
        ("tag=b", [3]),
        ("tag=b&name=mail", []),
        ("event=entered&name=mail", [0]),
        ("", []),
    ],
)
async def test_of_jobs_is_told_what_a_filter_names(edge, autojump_clock, query, heard):
    async def meanwhile() -> None:
        for hear in edge.control.ears:
            hear(ROWS)

    told = await listen(edge, f"counters=0&{query}", meanwhile)
    assert [data["event"] + data["job_id"] for _, data in told] == [
        f"{ROWS[place]['event']}{ROWS[place]['job_id']}" for place in heard
    ]
    for kind, data in told:
        assert (kind, data["at"], data["daemon"]) == ("job", "2030-01-31T08:00:00.000Z", "d")
        assert data["name"] in ("mail", "bill")
        assert not {"ts", "jobtype"} & set(data)


async def test_one_job_by_either_of_its_ids(edge, autojump_clock):
    job_id = edge.add(State.WAITING)
    edge.store.names["order/17"] = job_id

    async def meanwhile() -> None:
        edge.control.ears[0]([row("started", job_id), row("started", "another")])

    for named in (job_id, "order%2F17"):
        told = await listen(edge, f"counters=0&job_id={named}", meanwhile)
        assert [data["job_id"] for _, data in told] == [job_id]
    assert (await edge.call("GET", "/v1/events?job_id=none")).status == 404


async def test_whose_cancel_it_was_is_looked_up(edge, autojump_clock):
    mail, bill = edge.add(State.CANCELLED), edge.add(State.CANCELLED, jobtype="bill")

    async def meanwhile() -> None:
        edge.control.ears[0]([row("cancelled", each, None) for each in (mail, bill, "gone")])

    told = await listen(edge, "counters=0&name=mail", meanwhile)
    assert [data["job_id"] for _, data in told] == [mail]


@pytest.mark.parametrize("is_bound", [True, False])
def test_what_may_be_anybodys_takes_no_room_of_what_is_meant(is_bound):
    """And whom it is kept from is not told how much it was."""
    bound = Listener(can_access=lambda jobtype: jobtype.startswith("acme\x1f"), tenant="acme")
    mine = bound if is_bound else Listener(jobtype="mail")
    mine.receive([row("cancelled", str(number), None) for number in range(QUEUE_MAX + 345)])
    mine.receive([row("ended", "K", tenant="acme")])
    rows, dropped = mine.take()
    assert [each["job_id"] for each in rows] == ["K", *map(str, range(UNNAMED_MAX))]
    assert dropped == (0 if is_bound else QUEUE_MAX + 345 - UNNAMED_MAX)
    assert mine.take() == ([], 0)


async def test_which_tags_a_job_has_that_ended_is_looked_up(edge, autojump_clock):
    ours, other = edge.add(State.SUCCEEDED, tags=("a", "b")), edge.add(State.SUCCEEDED, tags=("c",))

    async def meanwhile() -> None:
        rows = [row(event, each) for event in ("started", "ended") for each in (ours, other, "gone")]
        edge.control.ears[0]([*rows, row("cancelled", ours, None), row("cancelled", other, None)])

    told = await listen(edge, "counters=0&tag=b", meanwhile)
    assert [(data["event"], data["job_id"]) for _, data in told] == [("ended", ours), ("cancelled", ours)]


def test_what_does_not_fit_a_queue_is_dropped_and_counted():
    listener = Listener(jobtype="mail")
    for _ in range(3):
        listener.receive([row("started")] * QUEUE_MAX)
    listener.receive([row("started", jobtype="bill")])
    assert listener.ready.is_set()
    rows, dropped = listener.take()
    assert (len(rows), dropped) == (QUEUE_MAX, 2 * QUEUE_MAX)
    assert (listener.take(), listener.ready.is_set()) == (([], 0), False)


async def test_who_is_slow_is_told_what_was_dropped(edge, autojump_clock):
    async def meanwhile() -> None:
        edge.control.ears[0]([row("started")] * (QUEUE_MAX + 7))

    told = await listen(edge, "counters=0&jobs=1", meanwhile)
    assert [kind for kind, _ in told] == ["job"] * QUEUE_MAX + ["dropped"]
    assert told[-1][1] == {"count": 7}


async def test_no_more_listen_than_may_and_who_leaves_makes_room(edge, autojump_clock):
    leave = trio.Event()
    answers: list[Answer] = []

    async def call() -> None:
        answers.append(await edge.call("GET", "/v1/events?counters=0", gone=leave))

    async with trio.open_nursery() as nursery:
        for _ in range(LISTENERS_MAX):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        refused = await edge.call("GET", "/v1/events")
        assert len(edge.api._parts.services.listeners) == LISTENERS_MAX
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        leave.set()
    assert {answer.status for answer in answers} == {200}
    assert edge.api._parts.services.listeners == []
    assert len(await listen(edge, "")) == 1


async def test_a_tenant_takes_no_others_seat(edge, autojump_clock):
    leave = trio.Event()

    async def call(tenant: str) -> None:
        await edge.call("GET", "/v1/events?counters=0", gone=leave, headers={"jqd-tenant": tenant})

    async with trio.open_nursery() as nursery:
        for tenant in ("acme", "other", "third"):
            for _ in range(TENANT_MAX):
                nursery.start_soon(call, tenant)
            await trio.testing.wait_all_tasks_blocked()
            refused = await edge.call("GET", "/v1/events", headers={"jqd-tenant": tenant})
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        refused = await edge.call("GET", "/v1/events", headers={"jqd-tenant": "fourth"})
        assert refused.status == 503
        assert (await edge.call("GET", "/v1/events?seconds=0.5")).status == 200, "who sees all tenants has a seat"
        leave.set()


@pytest.mark.parametrize(
    "query", ["event=pushed", "counters=maybe", "seconds=-1", "seconds=1e9", "tags=red", "jobs=2", "seconds=nan"]
)
async def test_what_is_wrong_is_named(edge, query):
    assert (await edge.call("GET", f"/v1/events?{query}")).status == 422


async def test_who_asks_for_the_head_alone_listens_to_nothing(edge):
    answer = await edge.call("HEAD", "/v1/events")
    assert (answer.status, answer.raw) == (200, b"")


async def test_a_tenant_hears_of_its_own_jobs_only(edge, autojump_clock):
    ours, others = edge.add(State.CANCELLED, jobtype="acme\x1fmail"), edge.add(State.CANCELLED)
    rows = [row("entered"), row("entered", "K", tenant="acme"), row("entered", "L", tenant="other")]

    async def meanwhile() -> None:
        edge.control.ears[0]([*rows, *(row("cancelled", each, None) for each in (ours, others, "gone"))])

    for named in ("jobs=1", "name=mail"):
        told = await listen(edge, f"counters=1&{named}", meanwhile, tenant="acme")
        assert "store" not in told[0][1], "its numbers are of all tenants"
        assert [data["job_id"] for _, data in told[1:]] == ["K", ours]


def test_who_knows_some_jobtypes_hears_of_no_others():
    listener = Listener(can_access=Principal("acme", Role.VIEWER, scopes=("mail*",)).can_access)
    listener.receive([row("entered", tenant="acme"), row("entered", jobtype="bill", tenant="acme"), row("entered")])
    assert [told["jobtype"] for told in listener.take()[0]] == ["mail"]


async def test_who_listens_with_a_token_does_not_when_it_is_revoked(edge, autojump_clock):
    whole = await Whole().begin()
    parts = whole.api._parts
    parts.auth = parts.auth._replace(required=True, root="root")
    root = {"authorization": "Bearer root"}
    made = (await whole.call("POST", "/v1/tokens", {"role": "viewer", "tenant": "acme"}, headers=root)).body
    bearer = {"authorization": f"Bearer {made['token']}"}
    told: list[Answer] = []

    async def call() -> None:
        told.append(await whole.call("GET", "/v1/events?counters=0", headers=bearer))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.sleep(3)
        assert not told
        assert (await whole.call("DELETE", f"/v1/tokens/{made['token_id']}", headers=root)).status == 200
        revoked_s = trio.current_time()
    assert trio.current_time() - revoked_s <= 1
    assert told[0].status == 200
