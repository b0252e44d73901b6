"""Long polls: an end is told to who waits for it, wherever it happens, and the store is asked a few times for all."""

from collections import Counter
from collections.abc import Callable

import pytest
import trio
import trio.testing

from jqd.domain.errors import StoreRefused
from jqd.domain.job import State
from tests.api.edge import Answer, Edge


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def wait(edge: Edge, job_id: str, told: list[Answer]) -> None:
    told.append(await edge.call("GET", f"/v1/jobs/{job_id}?wait=30"))


async def test_a_wait_ends_with_the_job(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    begun_s = trio.current_time()
    told: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, edge, job_id, told)
        await trio.sleep(0.25)
        edge.move(job_id, State.SUCCEEDED)
        edge.services.waiters.ring([job_id])
    assert told[0].body["state"] == "succeeded"
    assert trio.current_time() - begun_s == pytest.approx(0.25)


async def test_an_attempt_that_failed_does_not_end_the_wait(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    told: list[Answer] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, edge, job_id, told)
        await trio.sleep(0.25)
        edge.move(job_id, State.RETRYING)
        edge.services.waiters.ring([job_id])
        await trio.sleep(5)
        assert told == []
        edge.move(job_id, State.SUCCEEDED)
        edge.services.waiters.ring([job_id])
    assert told[0].body["state"] == "succeeded"


async def test_endings_elsewhere_are_found_by_looking(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    begun_s = trio.current_time()
    told: list[Answer] = []
    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, edge, job_id, told)
            await trio.sleep(3.5)
            edge.move(job_id, State.CANCELLED)
        watching.cancel_scope.cancel()
    assert told[0].body["state"] == "cancelled"
    assert trio.current_time() - begun_s <= 4.6


async def test_all_polls_together_ask_the_store_a_few_times(autojump_clock):
    """Each second each poll asked for its own job: a thousand that wait were a thousand calls a second."""
    edge = Edge()
    job_ids = [edge.add(State.RUNNING) for _ in range(1_200)]
    told: Counter[str] = Counter()

    async def wait(job_id: str) -> None:
        told[(await edge.call("GET", f"/v1/jobs/{job_id}?wait=20")).body["state"]] += 1

    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        async with trio.open_nursery() as nursery:
            for job_id in (*job_ids, job_ids[0]):
                nursery.start_soon(wait, job_id)
            await trio.sleep(10.5)
            assert (edge.store.looks, edge.store.pieces) == (1_201, [500, 500, 200] * 10)
            edge.store.away = True
            await trio.sleep(2)
            edge.store.away = False
            for job_id in job_ids:
                edge.move(job_id, State.SUCCEEDED)
        watching.cancel_scope.cancel()
    assert told == {"succeeded": 1_201}
    assert trio.current_time() < 15
    assert edge.services.waiters.job_ids == [], "nobody is remembered"


async def test_a_poll_of_a_job_on_its_way_asks_nobody(edge, autojump_clock):
    job_id = (await edge.call("POST", "/v1/jobs", {"name": "a"})).body["job_id"]
    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        assert (await edge.call("GET", f"/v1/jobs/{job_id}?wait=8")).body["state"] == "waiting"
        watching.cancel_scope.cancel()
    assert (edge.store.looks, edge.store.pieces) == (3, []), "at both ends, and once more when ingest has caught up"


async def test_a_store_that_refuses_ends_the_polls(edge, autojump_clock, monkeypatch):
    job_id = edge.add(State.RUNNING)

    async def refuse(job_id: object) -> None:
        raise StoreRefused("WRONGTYPE")

    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        watching.start_soon(_later, 2.5, lambda: [monkeypatch.setattr(edge.store, n, refuse) for n in REFUSING])
        assert (await edge.call("GET", f"/v1/jobs/{job_id}?wait=50")).status == 503
        watching.cancel_scope.cancel()
    assert trio.current_time() < 4


REFUSING = ("get_job", "unfinished")


async def _later(seconds: float, call: Callable[[], object]) -> None:
    await trio.sleep(seconds)
    call()


@pytest.mark.parametrize(
    ("wait", "waited_s"),
    [("2.5", 2.5), ("1e9", 60), ("1e99", 60), ("-4", 0), ("", None), ("x", None), ("nan", None), ("inf", None)],
)
async def test_a_wait_is_bounded(edge, autojump_clock, wait, waited_s):
    job_id = edge.add(State.WAITING)
    begun_s = trio.current_time()
    told = await edge.call("GET", f"/v1/jobs/{job_id}?wait={wait}")
    if waited_s is None:
        assert told.status == 422
    else:
        assert (told.status, told.body["state"]) == (200, "waiting")
        assert trio.current_time() - begun_s == pytest.approx(waited_s)
        assert edge.store.looks <= waited_s + 2


async def test_a_client_that_leaves_is_waited_for_no_more(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    gone = trio.Event()
    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: edge.call("GET", f"/v1/jobs/{job_id}?wait=50", gone=gone))
        await edge.store.looked.wait()
        gone.set()
    assert trio.current_time() - begun_s < 1
