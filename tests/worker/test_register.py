"""A worker's place at a daemon: it repeats itself, is registered anew when forgotten, and says goodbye."""

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import msgspec
import pytest
import structlog
import trio

from jqd.testing.daemon import Answer, ScriptedDaemon, open_daemon
from jqd.worker.register import Registration, Slots

PATIENCE_S = 20.0
SOON_S = 0.03  # a ttl so short that a test sees many repetitions

SHARE = {"max_jobs": 4, "batch": 500}
CARD: dict[str, Any] = {"name": "one", "url": "http://127.0.0.1:9/", "jobs": ["a"]}


@pytest.fixture
async def daemon() -> AsyncIterator[ScriptedDaemon]:
    async with open_daemon() as daemon:
        yield daemon


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield http


def place(url: str, http: httpx2.AsyncClient) -> Registration:
    return Registration(url + "/", CARD, Slots(4, 500), http=http, source=random.Random(1), ttl_s=SOON_S)


async def wait_registered(daemon: ScriptedDaemon, times: int) -> list[dict[str, Any]]:
    """The cards, once the daemon has seen so many registrations."""
    with trio.fail_after(PATIENCE_S):
        while daemon.counted("POST", "/v1/workers") < times:
            daemon.registered = trio.Event()
            await daemon.registered.wait()
    return [seen.body for seen in daemon.seen if seen.path == "/v1/workers"]


async def test_it_repeats_itself_with_its_id(daemon: ScriptedDaemon, http: httpx2.AsyncClient) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place(daemon.url, http).run)
        first, *later = await wait_registered(daemon, 4)
        nursery.cancel_scope.cancel()
    assert first == CARD | SHARE
    assert later[:3] == [CARD | SHARE | {"worker_id": "worker-1"}] * 3
    assert list(daemon.workers) == ["worker-1"]


@pytest.mark.parametrize(
    "answer", [Answer(404, {"detail": "unknown"}), Answer(409), Answer(500), Answer(200, {"a": 1})]
)
async def test_any_other_answer_makes_it_register_anew(
    daemon: ScriptedDaemon, http: httpx2.AsyncClient, answer: Answer
) -> None:
    usual = Answer(201, {"worker_id": "old"})
    daemon.script("POST", "/v1/workers", usual, answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place(daemon.url, http).run)
        cards = await wait_registered(daemon, 4)
        nursery.cancel_scope.cancel()
    assert [card.get("worker_id") for card in cards[:4]] == [None, "old", None, "worker-1"]


async def test_a_restarted_daemon_that_gives_another_id_is_followed(
    daemon: ScriptedDaemon, http: httpx2.AsyncClient
) -> None:
    daemon.script("POST", "/v1/workers", Answer(201, {"worker_id": "old"}), Answer(201, {"worker_id": "new"}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place(daemon.url, http).run)
        cards = await wait_registered(daemon, 3)
        nursery.cancel_scope.cancel()
    assert [card.get("worker_id") for card in cards[:3]] == [None, "old", "new"]


async def test_a_daemon_that_is_away_is_tried_and_told_of_once() -> None:
    tried, enough = 0, trio.Event()

    def refuse(request: httpx2.Request) -> httpx2.Response:
        nonlocal tried
        tried += 1
        if tried == 3:
            enough.set()
        raise httpx2.ConnectError("refused")

    with structlog.testing.capture_logs() as logs:
        transport = httpx2.MockTransport(refuse)
        async with httpx2.AsyncClient(transport=transport) as http, trio.open_nursery() as nursery:
            nursery.start_soon(place("http://daemon.test", http).run)
            with trio.fail_after(PATIENCE_S):
                await enough.wait()
            nursery.cancel_scope.cancel()
    assert [entry["event"] for entry in logs] == ["worker.not_registered"]
    assert logs[0]["trouble"] == "not reached: ConnectError refused"


async def test_leaving_unregisters_once(daemon: ScriptedDaemon, http: httpx2.AsyncClient) -> None:
    registration = place(daemon.url, http)
    await registration.leave()
    assert daemon.seen == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await wait_registered(daemon, 2)
        nursery.cancel_scope.cancel()
    await registration.leave()
    await registration.leave()
    assert daemon.workers == {}
    assert daemon.counted("DELETE", "/v1/workers/worker-1") == 1


async def test_leaving_a_daemon_that_is_away_does_no_harm() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        registration = place("http://daemon.test", http)
        registration.worker_id = "w"
        await registration.leave()
        assert registration.worker_id is None


async def test_slots_are_divided_among_the_daemons_that_answer() -> None:
    told: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    away, changed = {"c"}, trio.Event()

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal changed
        name = request.url.host
        if name in away:
            raise httpx2.ConnectError("refused")
        body = msgspec.msgpack.decode(request.content)
        assert body["batch"] == {4: 167, 5: 250}[body["max_jobs"]]
        told[name].append(body["max_jobs"])
        changed.set()
        changed = trio.Event()
        headers = {"content-type": "application/msgpack"}
        return httpx2.Response(201, content=msgspec.msgpack.encode({"worker_id": name}), headers=headers)

    async def wait(holds: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not holds():
                await changed.wait()

    slots = Slots(10, 500)
    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(transport=transport) as http, trio.open_nursery() as nursery:
        for name in told:
            # A ttl so long that nothing is repeated by itself: what is told anew is told because the share changed.
            place = Registration(f"http://{name}", CARD, slots, http=http, source=random.Random(1), ttl_s=9_999)
            nursery.start_soon(place.run)
        await wait(lambda: told["a"][-1:] == told["b"][-1:] == [5])
        away.clear()
        await wait(lambda: [told[name][-1:] for name in "abc"] == [[4], [4], [4]])
        nursery.cancel_scope.cancel()
