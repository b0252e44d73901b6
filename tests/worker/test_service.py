"""The worker over HTTP: streaming, limits, refusals and hang-ups. What it does when it is full: test_room.py."""

import threading
from itertools import product
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from jqd import App
from jqd.worker.batch import Batch, Item
from jqd.worker.service import Service, ServiceConfig
from jqd.worker.wire import JSON, MSGPACK, Codec, JobIn
from tests.worker.exchange import PATIENCE_S, Exchange, gated, jobs, packed, run_batch

app = App()


@app.job()
def echo(argument: Any, /) -> Any:
    return argument


@app.job()
async def echo_async(argument: Any, /) -> Any:
    return argument


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


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"queue_jobs": -1}])
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
