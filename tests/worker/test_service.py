"""The worker over HTTP: streaming, limits, refusals, hang-ups and stuck threads."""

import threading
from itertools import product
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from jqd import App
from jqd.words.clock import ManualClock
from jqd.worker.batch import Batch, Item
from jqd.worker.service import PATIENCE_S as PATIENCE
from jqd.worker.service import QUEUE_JOBS_DEFAULT, Service, ServiceConfig
from jqd.worker.wire import JSON, MSGPACK, Codec, JobIn
from tests.worker.exchange import Exchange, packed, run_batch

PATIENCE_S = 20.0  # for a thread to be scheduled on a busy machine

app = App()


@app.job()
def echo(argument: Any, /) -> Any:
    return argument


@app.job()
async def echo_async(argument: Any, /) -> Any:
    return argument


class Gate:
    """A job that stands still until the test lets it go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.ran: list[Any] = []

    def __call__(self, argument: Any) -> Any:
        self.ran.append(argument)
        self.begun.release()
        assert self.go.wait(PATIENCE_S)
        return argument

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.begun.acquire, True, PATIENCE_S)


def gated() -> tuple[App, Gate]:
    app, gate = App(), Gate()
    app.job("gate")(lambda argument, /: gate(argument))
    app.job("echo")(lambda argument, /: argument)
    return app, gate


def jobs(name: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"job_id": f"{name}-{n}", "name": name, "argument": n} | more for n in range(count)]


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_every_job_of_a_batch_gets_its_own_outcome(concurrency: int) -> None:
    batch = jobs("echo", 250) + jobs("echo_async", 250)
    exchange = await run_batch(app, *batch, config=ServiceConfig(concurrency=concurrency, linger_s=PATIENCE_S))
    assert {key: outcome["result"] for key, outcome in exchange.by_id.items()} == {
        job["job_id"]: job["argument"] for job in batch
    }
    # On a busy machine the batch takes so long that its beginnings are told, too.
    assert sum(told["type"] == "success" for told in exchange.body) == 500
    assert len(exchange.pieces) == 1, "outcomes that end close together share a chunk"


async def test_a_batch_that_is_done_at_once_has_a_length() -> None:
    exchange = await run_batch(app, *jobs("echo_async", 3), config=ServiceConfig(linger_s=PATIENCE_S))
    assert exchange.headers["content-length"] == str(len(b"".join(exchange.pieces)))
    assert exchange.headers["content-type"] == "application/msgpack"


async def test_a_slow_job_does_not_hold_back_its_neighbours() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=2))
    exchange = Exchange(service, packed(*jobs("gate", 1), *jobs("echo", 2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        seen: set[str] = set()
        while len(seen) < 2:
            seen |= {outcome["job_id"] for outcome in await exchange.next_outcomes()}
        assert seen == {"echo-0", "echo-1"}
        assert not gate.go.is_set()
        gate.go.set()
    service.close()
    assert exchange.by_id["gate-0"]["result"] == 0
    assert "content-length" not in exchange.headers


async def test_json_is_answered_in_json() -> None:
    body = msgspec.json.encode({"jobs": [*jobs("echo", 2), {"job_id": "x", "name": "echo_async"}]})
    service = Service(app.jobs)
    exchange = await Exchange(service, body, {"content-type": "application/json; charset=utf-8"}).run()
    service.close()
    assert {key: outcome["result"] for key, outcome in exchange.by_id.items()} == {"echo-0": 0, "echo-1": 1, "x": None}
    assert exchange.headers["content-type"] == "application/json"


@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
@pytest.mark.parametrize(
    "cuts", list(product([False, True], repeat=4)), ids=lambda cuts: "".join("01"[c] for c in cuts)
)
async def test_an_answer_is_whole_wherever_it_is_cut(codec: Codec, cuts: tuple[bool, ...]) -> None:
    batch, sent, last = Batch(codec, 3), b"", False
    for number in range(3):
        if cuts[number]:
            piece, last = batch.take()
            sent += piece
            assert not last
        item = Item(batch, JobIn(name="a", job_id=str(number)), app.jobs["echo"])
        batch.put(item, codec.encode({"n": number}))
        batch.put(item, codec.encode("never"))
    piece, last = batch.take()
    assert last
    sent += piece
    expected = [{"n": number} for number in range(3)]
    assert sent == (msgspec.json.encode(expected) if codec is JSON else b"".join(map(msgspec.msgpack.encode, expected)))


async def test_an_empty_batch_is_answered() -> None:
    assert (await run_batch(app)).pieces == []
    exchange = await Exchange(Service(app.jobs), b'{"jobs": []}', {"content-type": "application/json"}).run()
    assert (exchange.status, exchange.body) == (200, [])


async def test_an_unknown_job_may_be_known_tomorrow() -> None:
    exchange = await run_batch(app, {"job_id": "x", "name": "ecco"}, *jobs("echo", 1))
    unknown = exchange.by_id["x"]
    assert (unknown["type"], unknown["should_retry"], unknown["error"]) == ("failure", True, "unknown job name")
    assert unknown["message"] == "this worker knows no job 'ecco'; it knows: echo, echo_async"
    assert exchange.by_id["echo-0"]["type"] == "success"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"\xc1", None, 400, "no batch of jobs"),
        (b"", None, 400, "no batch of jobs"),
        (msgspec.msgpack.encode([1]), None, 400, "no batch of jobs"),
        (msgspec.msgpack.encode({"jobs": [{"job_id": "no name"}]}), None, 400, "name"),
        (msgspec.msgpack.encode({"jobs": "abc"}), None, 400, "no batch of jobs"),
        (msgspec.msgpack.encode({"jobs": []}), {}, 415, "application/msgpack"),
        (b"", {"content-type": "text/plain"}, 415, "what pages send"),
        (
            b"",
            {"content-type": "application/json", "origin": "http://evil.example", "host": "a"},
            403,
            "another site",
        ),
        (b"", {"content-type": "application/msgpack", "sec-fetch-site": "same-site"}, 403, "another site"),
        (b"{", {"content-type": "application/json"}, 400, "no batch of jobs"),
        (b"[" * 100_000, {"content-type": "application/json"}, 400, "no batch of jobs"),
        (b"name=a", {"content-type": "application/x-www-form-urlencoded"}, 415, "application/msgpack"),
        (b"x" * 101, None, 413, "up to 100 bytes"),
        (b"", {"content-type": "application/msgpack", "content-length": "101"}, 413, "up to 100 bytes"),
        (b"", {"content-type": "application/msgpack", "content-length": "1" * 5_000}, 413, "up to 100 bytes"),
    ],
)
async def test_what_is_no_batch_is_refused(body: bytes, headers: dict[str, str] | None, status: int, says: str) -> None:
    limit = 100 if status == 413 else 1_000_000
    exchange = await Exchange(Service(app.jobs, ServiceConfig(body_bytes_max=limit)), body, headers).run()
    assert (exchange.status, exchange.body["status"]) == (status, status)
    assert says in exchange.body["detail"]
    if headers and "json" in headers.get("content-type", ""):
        assert exchange.headers["content-type"] == "application/problem+json"


async def test_a_body_that_stalls_is_given_up() -> None:
    exchange = Exchange(Service(app.jobs, ServiceConfig(body_timeout_s=0.01)), b"")
    never: dict[str, Any] = {"type": "http.request", "body": b"a", "more_body": True}
    exchange._out_of.receive_nowait()
    exchange._into.send_nowait(never)
    await exchange.run()
    assert exchange.status == 408


async def test_a_body_cut_short_is_no_batch() -> None:
    exchange = Exchange(Service(app.jobs), b"")
    exchange._out_of.receive_nowait()
    exchange._into.send_nowait({"type": "http.request", "body": packed(*jobs("echo", 1)), "more_body": True})
    exchange.hang_up()
    await exchange.run()
    assert exchange.status == 0


async def test_other_methods_and_health() -> None:
    service = Service(app.jobs)
    assert (await Exchange(service, b"", method="PUT").run()).status == 405
    health = await Exchange(service, b"", method="GET").run()
    assert (health.status, health.body["status"], health.body["jobs"]) == (200, "ok", ["echo", "echo_async"])
    service.refuse("this worker is stopping")
    health = await Exchange(service, b"", method="GET").run()
    assert (health.status, health.body["reason"]) == (503, "this worker is stopping")
    refused = await run_batch(service, *jobs("echo", 1))
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"abandoned_max": 0}])
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ServiceConfig(**wrong)


# ---------------------------------------------------------------- hang-ups


async def test_when_the_daemon_hangs_up_tasks_are_cancelled_and_what_has_not_begun_is_skipped() -> None:
    app, gate = gated()
    cancelled = trio.Event()
    begun = trio.Event()

    @app.job()
    async def forever(argument: object, /) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    service = Service(app.jobs, ServiceConfig(concurrency=1))
    exchange = Exchange(service, packed(*jobs("gate", 5), *jobs("forever", 1)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await gate.wait_begun()
        await begun.wait()
        assert service.batches == 1
        exchange.hang_up()
    assert cancelled.is_set()
    assert service.batches == 0
    await service.wait_idle()
    gate.go.set()
    assert (await run_batch(service, *jobs("echo", 1))).by_id["echo-0"]["type"] == "success"
    assert gate.ran == [0], "the other four were never begun"
    service.close()


async def test_a_job_that_fails_while_it_is_cancelled_harms_nobody() -> None:
    app, begun = App(), trio.Event()

    @app.job()
    async def stubborn(argument: object, /) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("while cleaning up")

    exchange = Exchange(Service(app.jobs), packed(*jobs("stubborn", 2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await begun.wait()
        exchange.hang_up()
    assert exchange.pieces == []


# ---------------------------------------------------------------- stuck threads


async def test_a_function_past_its_timeout_is_reported_and_its_thread_replaced() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=1, abandoned_max=2))
    exchange = await run_batch(service, *jobs("gate", 1, timeout=0.05), *jobs("echo", 2))
    stuck = exchange.by_id["gate-0"]
    assert (stuck["type"], stuck["reason"], stuck["should_retry"]) == ("failure", "timeout", True)
    assert exchange.by_id["echo-1"]["result"] == 1, "the next thread went on with the batch"
    health = await Exchange(service, b"", method="GET").run()
    assert health.body["abandoned"] == 1
    gate.go.set()
    await wait_recovered(service)
    service.close()


async def test_a_function_past_its_timeout_whose_daemon_has_gone_keeps_no_thread() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=1, abandoned_max=2))
    left = Exchange(service, packed(*jobs("gate", 1, timeout=0.05)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        await gate.wait_begun()
        left.hang_up()
    assert service.batches == 0
    exchange = await run_batch(service, *jobs("echo", 1, timeout=2.0))
    assert exchange.by_id["echo-0"]["type"] == "success", (
        "or all that came would be handed back, as long as it is stuck"
    )
    assert (await Exchange(service, b"", method="GET").run()).body["abandoned"] == 1
    gate.go.set()
    await wait_recovered(service)
    service.close()


async def test_past_the_bound_of_stuck_threads_batches_are_refused_and_the_rest_handed_back() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=2, abandoned_max=2))
    with capture_logs() as lines:
        exchange = await run_batch(service, *jobs("gate", 5, timeout=0.05))
    (said,) = [line for line in lines if line["event"] == "worker.saturated"]
    assert (said["log_level"], said["stuck"]) == ("error", 2)
    assert "restart" in said["next"]
    how = sorted(outcome.get("reason", outcome["type"]) for outcome in exchange.body)
    assert how.count("timeout") >= 2
    assert set(how) <= {"timeout", "refused", "started"}, "what did not begin costs no attempt"
    assert len(gate.ran) <= 4, "never more threads than both limits allow"
    refused = await run_batch(service, *jobs("echo", 1))
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "threads are stuck" in refused.body["detail"]
    gate.go.set()
    await wait_recovered(service)
    assert (await run_batch(service, *jobs("echo", 1))).by_id["echo-0"]["type"] == "success"
    service.close()


async def wait_recovered(service: Service) -> None:
    """Return when no thread is abandoned any more; fails when that takes too long."""
    with trio.fail_after(PATIENCE_S):
        while (await Exchange(service, b"", method="GET").run()).body["abandoned"]:
            await trio.lowlevel.checkpoint()


# ---------------------------------------------------------------- more than there is room for


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_waits_too_long_is_handed_back_and_never_runs(is_async: bool) -> None:
    app, gate = gated()
    go, ran = trio.Event(), []

    @app.job("task")
    async def task(argument: Any, /) -> Any:
        ran.append(argument)
        await go.wait()
        return argument

    name, clock = ("task" if is_async else "gate"), ManualClock()
    service = Service(app.jobs, ServiceConfig(concurrency=1), clock=clock)
    exchange = Exchange(service, packed(*jobs(name, 3, timeout=30)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        if is_async:
            await trio.testing.wait_all_tasks_blocked()
        else:
            await gate.wait_begun()
        clock.advance(PATIENCE - 0.1)
        other = Exchange(service, packed(*jobs("echo", 1, timeout=0.2)))
        nursery.start_soon(other.run)
        await trio.testing.wait_all_tasks_blocked()
        clock.advance(0.1)
        for handed_back in ([f"{name}-1", f"{name}-2"], ["echo-0"])[: 1 if is_async else 2]:
            told = await (exchange if name in handed_back[0] else other).next_outcomes()
            assert [(each["type"], each["job_id"], each["retry_after"]) for each in told] == [
                ("refused", job_id, 1) for job_id in handed_back
            ]
            assert "behind other jobs" in told[0]["message"]
        gate.go.set()
        go.set()
    assert service.room == 1 + QUEUE_JOBS_DEFAULT // 2, "so many need not wait here"
    clock.advance(0.1)
    await Exchange(service, packed(*jobs("echo", 3))).run()
    assert service.room == 4 + QUEUE_JOBS_DEFAULT // 2, "it grows with what ends in time"
    service.close()
    assert exchange.by_id[f"{name}-0"]["type"] == "success", "its own time ran from when it began"
    assert (ran if is_async else gate.ran) == [0]


@pytest.mark.parametrize("name", ["echo", "echo_async"])
async def test_a_job_that_had_to_wait_says_when_it_begins(name: str) -> None:
    app, gate = gated()
    begun, go = trio.Event(), trio.Event()

    @app.job()
    async def echo_async(argument: Any, /) -> Any:
        if argument == 0:
            begun.set()
            await go.wait()
        return argument

    clock = ManualClock()
    service = Service(app.jobs, ServiceConfig(concurrency=1), clock=clock)
    first = jobs("gate", 1) if name == "echo" else jobs(name, 1)
    exchange = Exchange(service, packed(*first, {"job_id": "next", "name": name, "argument": 1}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await (gate.wait_begun() if name == "echo" else begun.wait())
        clock.advance(1.0)
        gate.go.set()
        go.set()
    service.close()
    told = [(each["type"], each["job_id"]) for each in exchange.body]
    assert told == [("success", first[0]["job_id"]), ("started", "next"), ("success", "next")]


async def test_past_the_room_a_batch_is_refused_or_the_rest_of_it() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=1, queue_jobs=1))
    exchange = Exchange(service, packed(*jobs("gate", 2), *jobs("echo", 2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        told = await exchange.next_outcomes()
        assert [(each["type"], each["job_id"]) for each in told] == [("refused", "echo-0"), ("refused", "echo-1")]
        assert "retry_after" not in told[0], "the worker is busy, not tired"
        await gate.wait_begun()
        refused = await Exchange(service, packed(*jobs("echo", 1))).run()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.body["detail"] == "1 jobs may run here and 1 wait, and so many do"
        gate.go.set()
    assert exchange.by_id["gate-1"]["result"] == 1
    assert service.room == 2
    # What runs although its daemon has gone takes room as well.
    gate.go.clear()
    await gate.wait_begun()
    left = Exchange(service, packed(*jobs("gate", 1)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        await gate.wait_begun()
        left.hang_up()
    assert service.room == 1
    gate.go.set()
    service.close()


# ---------------------------------------------------------------- mounting


def test_an_app_is_one_service_made_anywhere() -> None:
    mounted = App()
    assert mounted.asgi is mounted.asgi


async def test_the_lifespan_of_a_server_lets_the_threads_leave() -> None:
    service = Service(app.jobs)
    await run_batch(service, *jobs("echo", 1))
    before = {thread for thread in threading.enumerate() if thread.name.startswith("jqd-job")}
    assert before
    into, out_of = trio.open_memory_channel[Any](2)
    into.send_nowait({"type": "lifespan.startup"})
    into.send_nowait({"type": "lifespan.shutdown"})
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await service({"type": "lifespan"}, out_of.receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    for thread in before:
        await trio.to_thread.run_sync(thread.join, PATIENCE_S)
        assert not thread.is_alive()


async def test_only_http_is_spoken() -> None:
    with pytest.raises(NotImplementedError, match="not websocket"):
        await Service(app.jobs)({"type": "websocket"}, trio.sleep_forever, trio.sleep_forever)  # type: ignore[arg-type]
