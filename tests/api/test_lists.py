"""Lists under way are bounded: of one tenant, one address, and all together; each who is refused is told when again."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.api.lists import (
    ADDRESS_LISTS_MAX,
    AGAIN_S,
    KEPT,
    LISTS_MAX,
    STEP,
    TENANT_LISTS_MAX,
    ListLimit,
    ListQuery,
    _cursor_of,
    page_of,
)
from jqd.api.problems import Problem
from jqd.domain.errors import StoreAway
from jqd.domain.job import State
from jqd.domain.lease import Peer
from jqd.domain.tally import Counts
from jqd.history.counts import encode
from jqd.http import Request, RequestHead
from jqd.routes import ROUTES
from jqd.runner.registry import body_of
from tests.api.edge import JSON, MSGPACK, Edge
from tests.stalls import guarded

HERE, THERE = "192.0.2.1", "192.0.2.2"


def fill(lists: ListLimit, stack: ExitStack, owner: str, address: str) -> int:
    """How many more are let in."""
    for number in range(LISTS_MAX + 1):
        try:
            stack.enter_context(lists.place(owner, address))
        except Problem:
            return number
    raise AssertionError("there is no bound")


def test_each_tenant_each_address_and_all_together_have_a_bound() -> None:
    lists = ListLimit()
    with ExitStack() as stack:
        assert fill(lists, stack, "tenant acme", HERE) == TENANT_LISTS_MAX
        assert fill(lists, stack, "tenant other", HERE) == ADDRESS_LISTS_MAX - TENANT_LISTS_MAX
        assert fill(lists, stack, THERE, THERE) == (LISTS_MAX - ADDRESS_LISTS_MAX) // 2
        assert fill(lists, stack, "tenant third", "192.0.2.3") == (LISTS_MAX - ADDRESS_LISTS_MAX) // 4


def test_tenants_together_leave_places_to_each_other_and_to_who_runs_jqd() -> None:
    """Four tenants had all 64, and nobody else had a list: nor who wanted to stop them."""
    lists = ListLimit()
    with ExitStack() as stack:
        had = [fill(lists, stack, f"tenant {place}", f"10.0.0.{place}") for place in range(9)]
        assert (had[:5], sum(had)) == ([16, 16, 16, 8, 0], LISTS_MAX - KEPT)
        assert fill(lists, stack, THERE, THERE) == KEPT // 2


def test_a_place_is_free_again_however_a_list_ended_and_a_refused_one_takes_none() -> None:
    lists = ListLimit()
    with ExitStack() as stack:
        for _ in range(LISTS_MAX):
            with pytest.raises(ZeroDivisionError), lists.place("tenant acme", HERE):
                raise ZeroDivisionError
        assert fill(lists, stack, "tenant acme", HERE) == TENANT_LISTS_MAX
        for _ in range(LISTS_MAX):
            with pytest.raises(Problem) as refused, lists.place("tenant acme", THERE):
                raise AssertionError
            assert (refused.value.status, refused.value.retry_after_s) == (429, AGAIN_S)
        assert fill(lists, stack, THERE, THERE) == (LISTS_MAX - TENANT_LISTS_MAX) // 2
    assert fill(lists, ExitStack(), "tenant acme", HERE) == TENANT_LISTS_MAX


@asynccontextmanager
async def held(edge: Edge) -> AsyncIterator[trio.Event]:
    """Nothing is listed before the event is set."""
    go, list_jobs = trio.Event(), edge.store.list_jobs

    async def late(*args: Any, **more: Any) -> Any:
        await go.wait()
        return await list_jobs(*args, **more)

    edge.store.list_jobs = late  # type: ignore[method-assign]
    yield go


async def test_who_asks_for_too_many_at_once_is_told_and_others_are_not() -> None:
    edge = Edge()
    told: list[int] = []

    async def ask() -> None:
        told.append((await edge.call("GET", "/v1/jobs")).status)

    async with held(edge) as go, trio.open_nursery() as nursery:
        for _ in range(ADDRESS_LISTS_MAX):
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        refused = await edge.call("GET", "/v1/workers")
        assert (refused.status, refused.headers["retry-after"]) == (429, str(AGAIN_S))
        assert f"{ADDRESS_LISTS_MAX} lists are being made for 127.0.0.1 already" in refused.body["detail"]
        assert (await edge.call("GET", "/v1/stats")).status == 200, "it is no list"
        edge.client = (THERE, 1)
        assert (await edge.call("GET", "/v1/workers")).status == 200
        edge.client = ("127.0.0.1", 1)
        go.set()
    assert told == [200] * ADDRESS_LISTS_MAX
    assert (await edge.call("GET", "/v1/workers")).status == 200


def test_every_call_that_tells_of_many_things_counts() -> None:
    """A new one is to be looked at: does it grow with what there is?"""
    one_piece = {"/v1/events", "/v1/me", "/v1/stats", "/metrics", "/livez", "/openapi.json", "/openapi.yaml", "/docs"}
    one_piece |= {"/", "/start", "/stop"}
    lone = {route.path for route in ROUTES if route.method == "GET" and not route.lists}
    assert {path for path in lone if "<" not in path and "readyz" not in path} == one_piece


MADE = (
    ("PUT", "/v1/handlers/h", {"lang": "http", "body": "http://127.0.0.1:9/"}),
    ("PUT", "/v1/schedules/s", {"cron": "0 0 29 2 *", "job": {"name": "mail"}}),
    ("PUT", "/v1/constraints/c", {"match": "job.name == 'mail'", "concurrency": 1}),
    ("PUT", "/v1/quotas/acme", {"queued": 1}),
    (
        "POST",
        "/v1/workers",
        {"name": "w", "url": "http://127.0.0.1:9/", "max_jobs": 1, "jobs": [f"type-{n}" for n in range(30)]},
    ),
)
COPIES = 800
HELD_S = (
    0.06  # far more than any step has, and what a collection of garbage takes beside it; a list of workers took 0.2
)


async def full() -> Edge:
    """One of each kind that is listed from memory, and many like it."""
    edge = Edge()
    for method, path, body in MADE:
        assert (await edge.call(method, path, body)).status in (200, 201), path
    worker, settings = edge.workers.list()[-1], edge.workers.settings
    copies = [msgspec.structs.replace(worker, id=f"w{n}", name=f"w{n}") for n in range(COPIES)]
    bodies = {("worker", copy.id): body_of(copy) for copy in copies}
    for setting in settings.every("worker"):
        bodies |= {(setting.kind, f"{setting.name}{n}"): bytes(setting.body) for n in range(COPIES)}
    settings.take(settings.make(bodies, now_ms=1, origin=1))
    busy = encode({f"type-{number}": Counts() for number in range(200)})
    edge.store.history += [(edge.clock.wall_ms() - 60_000 * ago, busy) for ago in range(60)]
    for number in range(1_000):
        edge.add(State.WAITING, jobtype=f"type-{number}")
    return edge


async def test_no_list_is_made_in_one_piece() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    edge, told = await full(), 0
    with guarded(HELD_S):
        for route in ROUTES:
            if route.method == "GET" and route.lists and "<" not in route.path:
                limit = "?limit=1000" if "limit" in route.query.__struct_fields__ else ""
                for kind in (MSGPACK, JSON):
                    answer = await edge.call("GET", route.path + limit, accept=kind)
                    assert answer.status == 200, answer.raw
                    told += len(answer.raw)
    assert told > 10 * COPIES * 100


async def test_a_list_is_read_in_pieces_and_the_loop_is_left_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read, left_at = list[int](), list[int]()
    request = Request(RequestHead("GET", "/", "/", b"", {}))

    async def breathe() -> None:
        left_at.append(len(read))

    def found() -> Iterator[tuple[str, int]]:
        for number in range(10 * STEP):
            read.append(number)
            shuffled = number * 7 % (10 * STEP)
            yield f"{shuffled:05d}", shuffled

    monkeypatch.setattr(request, "breathe", breathe, raising=False)
    monkeypatch.setattr("jqd.domain.array_split.HELD_S", 0.0)
    page, cursor = await page_of(request, ListQuery(300, _cursor_of(f"{150:05d}")), found())
    assert page == [*range(151, 451)]
    assert cursor
    assert left_at == [*range(STEP, 10 * STEP + 1, STEP)]


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "cursor=!", "colour=red"])
@pytest.mark.parametrize("path", ["/v1/types", "/v1/daemons"])
async def test_a_query_that_is_none_is_refused_before_the_store_is_asked(
    path: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge()

    async def away(*_: Any) -> Any:
        raise StoreAway("the store is away")

    for name in ("stats", "list_types"):
        monkeypatch.setattr(edge.store, name, away, raising=False)
    monkeypatch.setattr(edge.control, "daemons", list, raising=False)
    assert (await edge.call("GET", path)).status == 503
    assert (await edge.call("GET", f"{path}?{query}")).status == 422


async def test_this_daemon_stands_first_on_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge()
    peers = [Peer(name, 1, name == "c", True, True, 0.0) for name in "dcba"]
    monkeypatch.setattr(edge.control, "daemons", lambda: peers, raising=False)
    told, path = list[str](), "/v1/daemons?limit=3"
    page = (await edge.call("GET", path)).body
    told += [row["daemon"] for row in page["daemons"]]
    page = (await edge.call("GET", f"{path}&cursor={page['cursor']}")).body
    assert (told, [row["daemon"] for row in page["daemons"]], page["cursor"]) == (["c", "a", "b"], ["d"], "")
