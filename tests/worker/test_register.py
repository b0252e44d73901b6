"""A worker's place at a daemon: it repeats itself, is registered anew when forgotten, and says goodbye."""

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
import structlog
import trio
import trio.testing

from jqd.worker.register import Registration, Slots
from tests.harness.daemon import Answer, ScriptedDaemon

PATIENCE_S = 60.0
SOON_S = 0.03  # a ttl so short that a test sees many repetitions

SHARE = {"max_jobs": 4, "batch": 500}
CARD: dict[str, Any] = {"name": "one", "url": "http://127.0.0.1:9/", "jobs": ["a"]}


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield http


def place(url: str, http: httpx2.AsyncClient, ttl_s: float = SOON_S, slots: Slots | None = None) -> Registration:
    slots, source = slots or Slots(lambda: 4, 500), random.Random(1)
    return Registration(url + "/", lambda: CARD, slots, worker_id="w", http=http, source=source, ttl_s=ttl_s)


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
    assert [first, *later[:3]] == [CARD | SHARE] * 4
    assert list(daemon.workers) == ["w"]


@pytest.mark.parametrize(
    "answer", [Answer(404, {"detail": "unknown"}), Answer(409), Answer(500), Answer(200, {"a": 1})]
)
async def test_after_any_other_answer_it_registers_anew_at_once(
    daemon: ScriptedDaemon, http: httpx2.AsyncClient, answer: Answer
) -> None:
    daemon.script("POST", "/v1/workers", Answer(201, {"worker_id": "w"}), answer)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(PATIENCE_S):
            nursery.start_soon(place(daemon.url, http).run)
            await wait_registered(daemon, 4)
        nursery.cancel_scope.cancel()
    assert list(daemon.workers) == ["w"]


async def test_a_daemon_that_gives_another_id_is_followed(daemon: ScriptedDaemon, http: httpx2.AsyncClient) -> None:
    daemon.script("POST", "/v1/workers", Answer(201, {"worker_id": "other"}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place(daemon.url, http).run)
        await wait_registered(daemon, 2)
        nursery.cancel_scope.cancel()
    assert list(daemon.workers) == ["other"]


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


@pytest.mark.parametrize("status", [401, 403])
async def test_a_token_that_is_refused_from_the_start_is_given_up_and_no_other(
    autojump_clock: trio.testing.MockClock, status: int
) -> None:
    """Of a worker that was known once its jobs may still end, and a daemon that recovers may know its token again."""
    answers: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        told = answers.pop(0) if answers else status
        return httpx2.Response(told, content=msgspec.msgpack.encode({"worker_id": "w", "detail": "role"}))

    async def given_up(*first: int) -> float:
        """After how long; inf: never."""
        answers[:] = first
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, trio.open_nursery() as nursery:
            slots, began_s = Slots(lambda: 4, 500), trio.current_time()
            registration = place("http://daemon.test", http, slots=slots)
            nursery.start_soon(registration.run)
            with trio.move_on_after(3_600) as waited:
                await slots.refused.wait()
                assert registration.trouble == f"answered {status}: role"
            nursery.cancel_scope.cancel()
        return float("inf") if waited.cancelled_caught else trio.current_time() - began_s

    assert 2 < await given_up() < 20, "a new token is known at all daemons within two seconds"
    assert await given_up(503, status, status, status, 500) < 60
    assert await given_up(201) == float("inf")


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
    assert daemon.counted("DELETE", "/v1/workers/w") == 1


class Stores:
    """Scripted daemons by host name, each of a store that may have several."""

    def __init__(self, **stores: list[str]) -> None:
        self.stores = stores
        self.urls: list[Any] = []
        self.away: set[str] = set()
        self.told: dict[str, dict[str, Any]] = {}
        self.changed = trio.Event()

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        name = request.url.host
        if name in self.away:
            self.told.pop(name, None)
            raise httpx2.ConnectError("refused")
        if request.method == "DELETE":
            return httpx2.Response(404)
        self.told[name] = msgspec.msgpack.decode(request.content)
        self.changed.set()
        self.changed = trio.Event()
        body = {"worker_id": "w", "daemons": self.stores[name], "urls": self.urls}
        headers = {"content-type": "application/msgpack"}
        return httpx2.Response(201, content=msgspec.msgpack.encode(body), headers=headers)

    async def wait(self, **shares: int) -> None:
        """Return when each of these daemons was told so many slots."""
        with trio.fail_after(PATIENCE_S):
            while {name: self.told.get(name, {}).get("max_jobs") for name in shares} != shares:
                await self.changed.wait()


async def test_while_its_daemon_is_away_another_one_of_the_store_takes_it() -> None:
    stores = Stores(a=["1", "2"], b=["1", "2"])
    stores.urls = ["http://b/", "http://a", "ftp://c", 7, "http://b"]
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(stores.answer)) as http:
        registration = place("http://a", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            await stores.wait(a=4)
            assert stores.told.keys() == {"a"}, "one daemon is enough while it answers"
            stores.away.add("a")
            await stores.wait(b=4)
            assert not registration.is_away
            with trio.fail_after(PATIENCE_S):
                while registration.daemon != "http://b":
                    await trio.lowlevel.checkpoint()
            stores.away.clear()
            await stores.wait(a=4)
            nursery.cancel_scope.cancel()


async def test_who_spoke_tls_speaks_it_with_the_others_too() -> None:
    stores = Stores(a=["1", "2"], b=["1", "2"])
    stores.urls = ["http://b", "https://b"]
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(stores.answer)) as http:
        registration = place("https://a", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            await stores.wait(a=4)
            stores.away.add("a")
            with trio.fail_after(PATIENCE_S):
                while registration.daemon == "https://a":
                    await trio.lowlevel.checkpoint()
            assert registration.daemon == "https://b"
            nursery.cancel_scope.cancel()


async def test_leaving_a_daemon_that_is_away_does_no_harm() -> None:
    stores = Stores(a=["1"])
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(stores.answer)) as http:
        registration = place("http://a", http, 9_999)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            await stores.wait(a=4)
            nursery.cancel_scope.cancel()
        stores.away.add("a")
        with structlog.testing.capture_logs() as logs:
            await registration.leave()
    assert [line["event"] for line in logs] == ["worker.not_unregistered"]
