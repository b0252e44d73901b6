"""What a worker that pulls makes of what a daemon answers."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
import trio

from jqd import App
from jqd.worker.attempt import Attempts
from jqd.worker.executors import InProcess
from jqd.worker.lease import Lease, Outcome
from jqd.worker.process_pool import ProcessPool
from jqd.worker.pull import Puller
from jqd.worker.register import Registration, Slots
from jqd.worker.service import Service, ServiceConfig
from tests.loops.house import TrioClock

URL = "http://daemon"
DEEP = b"\x91" * 5_000 + b"\xc0"  # more than Python reads
app = App()


@app.job(keep_result=True)
async def odd(argument: Any, /) -> Any:
    return {1: [b"\x00", msgspec.msgpack.Ext(7, b"x")]}


@app.job(keep_result=True)
async def deep(argument: Any, /) -> Any:
    return msgspec.Raw(DEEP)


@app.job()
async def wait(argument: Any, /) -> None:
    await trio.sleep(argument)


PACKED, NIL = {"content-type": "application/msgpack"}, b"\xc0"


class FakeDaemon:
    """Gives the leases that `leases` holds, one a poll, and takes all outcomes unless `refuses` says another status."""

    def __init__(self, *leases: list[dict[str, Any]]) -> None:
        self.leases = list(leases)
        self.polled: list[dict[str, Any]] = []
        self.taken: dict[str, dict[str, Any]] = {}
        self.refuses: Callable[[dict[str, Any]], tuple[int, str]] = lambda outcome: (200, "")
        self.poll = trio.Event()
        self.seen = trio.Event()
        self.status = 200
        self.odd: dict[str, list[bytes]] = {}
        """What it answers first, by the last part of the path."""
        self.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def give(self, *leases: list[dict[str, Any]]) -> None:
        """Answer the next polls with these; one that waits now gets the first."""
        self.leases = list(leases)
        self.poll.set()
        self.poll = trio.Event()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body: Any = msgspec.msgpack.decode(request.content) if request.content else None
        status, told = 200, dict[str, Any]()
        if request.url.path == "/v1/workers":
            told = {"worker_id": body["worker_id"], "daemons": ["d"]}
        elif request.url.path == "/v1/leases":
            self.polled.append(body)
            status, self.status = self.status, 200
            with trio.move_on_after(0 if self.leases else body["wait"]):
                await self.poll.wait()
            jobs = self.leases.pop(0) if self.leases else []
            told = {"lease_id": str(len(self.polled)) if jobs else None, "jobs": jobs, "heartbeat": 10}
        elif request.url.path == "/v1/outcomes":
            rows = [(outcome, *self.refuses(outcome)) for outcome in body]
            self.taken |= {outcome["job_id"]: outcome for outcome, answer, _ in rows if answer == 200}
            told = {"outcomes": [{"job_id": o["job_id"], "status": answer, "detail": why} for o, answer, why in rows]}
            self.seen.set()
        if odd := self.odd.get(request.url.path.rpartition("/")[2]):
            return httpx2.Response(200, content=odd.pop(0), headers=PACKED)
        return httpx2.Response(status, content=msgspec.msgpack.encode(told), headers=PACKED)


@asynccontextmanager
async def pulling(
    daemon: FakeDaemon, concurrency: int = 4, service: Service | None = None, pool: ProcessPool | None = None
) -> AsyncIterator[tuple[Puller, Service]]:
    service = service or Service(app.jobs, ServiceConfig(concurrency=concurrency), clock=TrioClock())
    slots, source = Slots(lambda: concurrency, 500), random.Random(1)
    card = {"name": "w", "jobs": list(app.jobs)}
    place = Registration(URL, lambda: card, slots, worker_id="w", http=daemon.http, source=source)
    puller = Puller(service, [place], daemon.http, process_pool=pool, clock=TrioClock())
    async with trio.open_nursery() as nursery, daemon.http:
        nursery.start_soon(place.run)
        nursery.start_soon(puller.run)
        yield puller, service
        puller.stopping.set()
        await puller.ended.wait()
        nursery.cancel_scope.cancel()


def job(job_id: str, name: str, argument: Any = None, max_retry: int = 0) -> dict[str, Any]:
    told = {"job_id": job_id, "name": name, "argument": argument}
    return {**told, "attempt": 1, "max_retry": max_retry, "timeout": 600.0}


def waits(jobs: int, seconds: float, letter: str, max_retry: int = 5) -> list[dict[str, Any]]:
    return [job(f"{letter}{n}", "wait", seconds, max_retry) for n in range(jobs)]


async def test_a_result_comes_as_it_was_returned(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("a", "odd"), job("b", "unknown")])
    async with pulling(daemon):
        while len(daemon.taken) < 2:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
    assert daemon.taken["a"]["result"] == {1: [b"\x00", msgspec.msgpack.Ext(7, b"x")]}
    assert (daemon.taken["a"]["type"], daemon.taken["a"]["lease_id"]) == ("success", "1")
    assert (daemon.taken["b"]["should_retry"], daemon.taken["b"]["error"]) == (True, "unknown job name")
    assert daemon.polled[0] == {"worker_id": "w", "max_jobs": 4, "heartbeat": 10.0, "wait": 2.0}


async def test_a_lease_of_a_daemon_that_died_is_reported_to_another_one_of_its_store(autojump_clock: None) -> None:
    daemon, dead, asked = FakeDaemon([job("a", "wait", 5.0)]), set[str](), list[tuple[str, str]]()
    hosts = ["one", "two"]

    async def answer(request: httpx2.Request) -> httpx2.Response:
        host, path = request.url.host, request.url.path
        asked.append((host, path))
        if host in dead:
            raise httpx2.ConnectError("it is gone", request=request)
        if host == "two" and path == "/v1/leases":
            await trio.sleep(2)
            return httpx2.Response(
                200, content=msgspec.msgpack.encode({"lease_id": None, "jobs": [], "heartbeat": 10}), headers=PACKED
            )
        answered = await daemon._answer(request)
        if path == "/v1/workers":
            told = msgspec.msgpack.decode(answered.content) | {"daemons": hosts}
            return httpx2.Response(200, content=msgspec.msgpack.encode(told), headers=PACKED)
        return answered

    service = Service(app.jobs, ServiceConfig(concurrency=2), clock=TrioClock())
    slots, card = Slots(lambda: 2, 500), {"name": "w", "jobs": list(app.jobs)}
    async with trio.open_nursery() as nursery, httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        places = [
            Registration(f"http://{host}", lambda: card, slots, worker_id="w", http=http, source=random.Random(1))
            for host in hosts
        ]
        puller = Puller(service, places, http, clock=TrioClock())
        for place in places:
            nursery.start_soon(place.run)
        nursery.start_soon(puller.run)
        while not service.jobs_in_flight:
            await trio.sleep(0.1)
        dead.add("one")
        with trio.fail_after(30):
            await daemon.seen.wait()
        assert ("two", "/v1/outcomes") in asked
        assert daemon.taken["a"]["type"] == "success"
        puller.stopping.set()
        await puller.ended.wait()
        nursery.cancel_scope.cancel()


async def test_it_asks_for_as_many_as_can_begin_and_for_none_while_none_can(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("a", "wait", 5)], [job("b", "wait", 300)])
    async with pulling(daemon, concurrency=2):
        await trio.sleep(50)
        assert [poll["max_jobs"] for poll in daemon.polled[:3]] == [2, 1, 1]
        assert list(daemon.taken) == ["a"]
        daemon.leases.append([job("c", "wait", 30)])
        await trio.sleep(5)
        polls = len(daemon.polled)
        await trio.sleep(20)
        assert len(daemon.polled) == polls, "both slots are taken"
        await trio.sleep(20)
        assert list(daemon.taken) == ["a", "c"]
        assert len(daemon.polled) > polls


class Laden(InProcess):
    """Has jobs at work that nobody waits for any more, as many as a test says."""

    laden = 0

    @property
    def orphans(self) -> int:
        return self.laden


async def test_room_that_no_outcome_tells_of_is_found(autojump_clock: None) -> None:
    daemon, clock = FakeDaemon([job("a", "odd")]), TrioClock()
    executor = Laden(Attempts(clock), concurrency=1, clock=clock)
    executor.laden = 1
    async with pulling(daemon, service=Service(app.jobs, ServiceConfig(1), clock=clock, executor=executor)):
        await trio.sleep(50)
        assert not daemon.polled
        executor.laden = 0
        await trio.sleep(2)
        assert list(daemon.taken) == ["a"]


async def test_what_goes_back_all_at_once_is_not_asked_for_again_at_once(autojump_clock: None) -> None:
    daemon, clock = FakeDaemon(*[[job(f"a{n}", "odd")] for n in range(500)]), TrioClock()
    executor = Laden(Attempts(clock), concurrency=1, clock=clock)
    service = Service(app.jobs, ServiceConfig(1), clock=clock, executor=executor)
    async with pulling(daemon, service=service) as (puller, _):
        puller._sorted = lambda jobs: ([], list(jobs))  # type: ignore[method-assign]
        await trio.sleep(10)
        assert {how["type"] for how in daemon.taken.values()} == {"refused"}
        assert 5 <= len(daemon.taken) <= 12


async def test_of_quick_jobs_it_asks_for_more_and_what_was_too_much_or_has_no_other_attempt_goes_back(
    autojump_clock: None,
) -> None:
    """Each job takes 10 ms: with four at once forty end in a tenth of a second."""
    daemon = FakeDaemon(*[waits(4, 0.01, f"{lease}-") for lease in range(50)])
    async with pulling(daemon) as (_, service):
        while len(daemon.taken) < 200:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
        assert daemon.polled[0]["max_jobs"] == 4
        assert 30 <= max(poll["max_jobs"] for poll in daemon.polled) <= 40
        daemon.give(waits(40, 0.01, "many-"), waits(20, 0.01, "last-", max_retry=0))
        while len(daemon.taken) < 260:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
        told = {letter: [how for name, how in daemon.taken.items() if name.startswith(letter)] for letter in ("m", "l")}
        assert [how["type"] for how in told["m"]].count("success") >= 36, "they had their turn"
        back = [how for how in told["l"] if how["type"] == "refused"]
        assert len(back) >= 16
        assert back[0]["message"].startswith("it could not begin at once")
        polls = len(daemon.polled)
        daemon.give(waits(4, 0.01, "then-"))
        while len(daemon.taken) < 264:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
        await trio.sleep(3)
        assert {poll["max_jobs"] for poll in daemon.polled[polls + 1 :]} == {4}, "for a while it asks for no more"
        await trio.sleep(20)
        daemon.give(waits(30, 1.0, "slow-"))
        while sum(name.startswith("slow-") for name in daemon.taken) < 26:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
        assert service.jobs_in_flight == 4, "nobody knows how long they take: the others wait for none of them"


async def test_what_no_daemon_can_take_has_failed(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("a", "odd")])
    daemon.refuses = lambda outcome: (422, "result: no") if outcome.get("type") == "success" else (200, "")
    async with pulling(daemon):
        while not daemon.taken:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
    assert (daemon.taken["a"]["status"], daemon.taken["a"]["message"]) == (422, "INVALID_RESPONSE: result: no")


async def test_a_result_that_nobody_can_read_fails_its_job_and_no_other(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("a", "deep"), job("b", "odd")], [job("c", "odd")])
    async with pulling(daemon):
        while len(daemon.taken) < 3:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
    told = daemon.taken["a"]
    assert (told["status"], told["lease_id"]) == (422, "1")
    assert told["message"].startswith("INVALID_RESPONSE: its outcome nests too deep to be read")
    assert [daemon.taken[each]["type"] for each in "bc"] == ["success", "success"]


async def test_answers_that_nobody_can_read_end_no_worker(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("lost", "odd")], [job("a", "wait", 30), job("b", "odd")])
    odd = b"\x81\xa1x" + DEEP
    daemon.odd = {"leases": [odd], "heartbeat": [odd, odd], "outcomes": [odd]}
    async with pulling(daemon):
        while "a" not in daemon.taken:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
    assert list(daemon.taken) == ["b", "a"]
    assert daemon.odd == {"leases": [], "heartbeat": [], "outcomes": []}


async def test_jobs_that_come_after_it_was_told_to_stop_go_back_untried(autojump_clock: None) -> None:
    daemon = FakeDaemon()
    async with pulling(daemon) as (puller, service):
        while not daemon.polled:
            await trio.sleep(0.1)
        service.refuse("this worker is stopping")
        puller.stopping.set()
        daemon.leases.append([job("a", "odd")])
        daemon.poll.set()
    assert daemon.taken["a"] == {
        "job_id": "a", "lease_id": "1", "type": "refused", "message": "this worker is stopping"
    }  # fmt: skip


async def test_after_an_answer_without_a_lease_it_registers_anew_and_asks_again(autojump_clock: None) -> None:
    daemon = FakeDaemon([job("lost", "odd")], [job("a", "odd")])
    daemon.status = 404
    async with pulling(daemon):
        while not daemon.taken:
            await daemon.seen.wait()
            daemon.seen = trio.Event()
    assert list(daemon.taken) == ["a"]


async def test_only_a_daemon_that_does_not_answer_counts_as_away(autojump_clock: None) -> None:
    asked, away = list[str](), list[int]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        match len(asked):
            case 1:
                return httpx2.Response(
                    503, content=NIL, headers=PACKED
                )  # it has much to do: one more call would not help
            case 2:
                raise httpx2.ConnectError("refused")
            case _:
                return httpx2.Response(
                    200, content=msgspec.msgpack.encode({"outcomes": [{"status": 200}]}), headers=PACKED
                )

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, trio.open_nursery() as nursery:
        lease = Lease("1", ["a"], http, lambda: URL, 30.0, lambda: away.append(len(asked)))
        nursery.start_soon(lease.report)
        lease.put(Outcome(job_id="a", status=200))
        await lease.wait_taken()
        nursery.cancel_scope.cancel()
    assert (len(asked), away) == (3, [2])


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [
        (httpx2.Response(404, text="404 page not found"), False),
        (httpx2.Response(409, html="<html>conflict</html>"), False),
        (httpx2.Response(404), False),
        (httpx2.Response(404, json={"message": "no Route matched with those values"}), False),
        (httpx2.Response(404, content=NIL, headers=PACKED), True),
        (httpx2.Response(409, content=b"\x80", headers=PACKED), True),
    ],
)
async def test_only_a_daemons_own_answer_to_a_heartbeat_ends_a_lease(
    answer: httpx2.Response, is_lost: bool, autojump_clock: None
) -> None:
    asked, stopped = list[str](), list[str]()

    def answers(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        return answer

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answers)) as http, trio.open_nursery() as nursery:
        lease = Lease("1", ["a"], http, lambda: URL, 30.0, lambda: None)
        lease.stop = stopped.append
        nursery.start_soon(lease.beat)
        await trio.sleep(15)  # longer than one heartbeat of three in 30 s
        nursery.cancel_scope.cancel()
    assert asked
    assert stopped == ["a"] * is_lost
    assert lease.unwanted == ({"a": True} if is_lost else {})


@pytest.mark.parametrize("status", [400, 404, 422, 502, 503, 504])
async def test_what_a_proxy_says_of_a_report_loses_no_outcome(status: int, autojump_clock: None) -> None:
    reported, away = list[Any](), list[int]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        reported.append(msgspec.msgpack.decode(request.content))
        if len(reported) == 1:
            return httpx2.Response(status, html="<html>no upstream</html>")
        rows = {"outcomes": [{"status": 200}]}
        return httpx2.Response(200, content=msgspec.msgpack.encode(rows), headers=PACKED)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http, trio.open_nursery() as nursery:
        lease = Lease("1", ["a"], http, lambda: URL, 30.0, lambda: away.append(len(reported)))
        nursery.start_soon(lease.report)
        lease.put(Outcome(job_id="a", status=200, result=7))
        await lease.wait_taken()
        nursery.cancel_scope.cancel()
    assert len(reported) == 2
    assert reported[0] == reported[1], "a success stays one"
    assert away == [1]
