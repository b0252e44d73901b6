"""Async functions under asyncio: how they end, how they are stopped, and what one that blocks its loop does."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from jqd import App, Failed, current
from jqd.worker import aio
from jqd.worker.batch import Item
from jqd.worker.executors import LINGERS
from jqd.worker.service import Service, ServiceConfig
from jqd.worker.watchdog import Watchdog
from tests.worker.exchange import Exchange, packed, run_batch

PATIENCE_S = 60.0  # for a thread to be scheduled on a busy machine


class Stage:
    """An app whose functions say when they stand still."""

    def __init__(self, concurrency: int = 2) -> None:
        self.app = App(loop="asyncio")
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.stopped: list[Any] = []
        self.app.job("end")(self.end)
        self.app.job("stay")(self.stay)
        self.app.job("block")(self.block)
        self.service = Service(self.app.jobs, ServiceConfig(concurrency=concurrency))

    async def end(self, argument: Any, /) -> Any:
        context = current()
        await asyncio.sleep(0)
        match argument:
            case "fail":
                raise Failed("no such file")
            case "raise":
                raise ValueError("odd")
            case "own timeout":
                raise TimeoutError("of a library")
            case "exit":
                raise SystemExit(3)
            case "stop the loop":
                asyncio.get_running_loop().stop()
            case "exit below":
                await asyncio.gather(self.leave(), asyncio.sleep(PATIENCE_S))
            case "cancel itself":
                raise asyncio.CancelledError
        return [argument, context.attempt, asyncio.get_running_loop() is not None]

    async def leave(self) -> None:
        raise SystemExit(4)

    async def stay(self, argument: Any, /) -> None:
        self.begun.release()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            self.stopped.append(argument)

    async def block(self, argument: Any, /) -> None:
        """What an async function must not do."""
        self.begun.release()
        self.go.wait(PATIENCE_S)

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.begun.acquire, True, PATIENCE_S)


class Vanishing:
    """`Item.stop`, there for one look only."""

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, item: Any, kind: Any) -> Any:
        stop = self.slot.__get__(item, kind)
        self.slot.__set__(item, None)
        return stop

    def __set__(self, item: Any, stop: Any) -> None:
        self.slot.__set__(item, stop)


@pytest.mark.parametrize(
    ("argument", "kind", "error"),
    [
        (7, "success", None),
        ("fail", "failure", "no such file"),
        ("raise", "failure", "ValueError: odd"),
        ("own timeout", "failure", "TimeoutError: of a library"),
        ("exit", "failure", "SystemExit: 3"),
        ("cancel itself", "failure", "CancelledError"),
    ],
)
async def test_every_way_to_end(argument: Any, kind: str, error: str | None) -> None:
    (outcome,) = (await run_batch(Stage().app, {"job_id": "a", "name": "end", "argument": argument})).body
    assert (outcome["type"], outcome.get("error")) == (kind, error)
    if kind == "success":
        assert outcome["result"] == [7, 1, True]


async def test_no_more_at_once_than_there_are_slots_and_each_has_its_own_time() -> None:
    stage = Stage(concurrency=2)
    jobs = [{"job_id": str(n), "name": "stay", "timeout": 0.4} for n in range(3)]
    jobs.append({"job_id": "quick", "name": "end", "argument": 1, "timeout": 5})
    exchange = await run_batch(stage.service, *jobs)
    stage.service.close()
    outcomes = {each["job_id"]: each for each in exchange.body if each["type"] != "started"}
    assert [outcomes[str(n)].get("reason", "refused") for n in range(3)] == ["timeout", "timeout", "refused"]
    assert outcomes["quick"]["type"] == "success"


async def test_it_is_cancelled_by_its_id_and_when_the_daemon_hangs_up() -> None:
    stage = Stage()
    exchange = Exchange(stage.service, packed({"job_id": "a", "name": "stay", "argument": "a", "timeout": PATIENCE_S}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await stage.wait_begun()
        answer = await Exchange(stage.service, b"", method="DELETE", query="job_id=a").run()
        assert answer.status == 204
    assert (exchange.by_id["a"]["status"], stage.stopped) == (499, ["a"])
    gone = Exchange(stage.service, packed({"job_id": "b", "name": "stay", "argument": "b", "timeout": PATIENCE_S}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gone.run)
        await stage.wait_begun()
        gone.hang_up()
    with trio.fail_after(PATIENCE_S):
        while stage.stopped != ["a", "b"]:
            await trio.sleep(0.001)
    stage.service.close()


async def test_one_that_blocks_its_loop_is_reported_and_no_batch_is_taken_until_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "Watchdog", partial(Watchdog, silent_s=0.05))
    stage = Stage(concurrency=1)
    with capture_logs() as lines:
        exchange = await run_batch(stage.service, {"job_id": "a", "name": "block", "timeout": 0.05})
        with trio.fail_after(PATIENCE_S):
            while not any(line["event"] == "worker.loop_blocked" for line in lines):
                await trio.sleep(0.01)  # a thread listens
    assert exchange.by_id["a"]["reason"] == "timeout"
    said = {line["event"]: line for line in lines}
    assert said["worker.loop_blocked"]["jobs"] == "a (block)"
    assert said["worker.overrun"]["job_id"] == "a"
    assert "must not block" in said["worker.overrun"]["why"]
    health = await Exchange(stage.service, b"", method="GET").run()
    assert (health.status, health.body["stuck"]) == (503, 1)
    stage.go.set()
    deadline_s = time.monotonic() + PATIENCE_S
    while stage.service.refusing():
        assert time.monotonic() < deadline_s
        await trio.sleep(0.01)
    again = await run_batch(stage.service, {"job_id": "b", "name": "end", "argument": 1})
    assert again.by_id["b"]["type"] == "success"
    stage.service.close()


@pytest.mark.parametrize(("argument", "kind"), [("stop the loop", "success"), ("exit below", "failure")])
async def test_one_that_ends_the_loop_ends_neither_its_neighbours_nor_those_who_come(argument: str, kind: str) -> None:
    stage = Stage()
    beside = {"job_id": "beside", "name": "stay", "argument": "b", "timeout": PATIENCE_S}
    exchange = Exchange(stage.service, packed(beside))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await stage.wait_begun()
        with capture_logs() as lines:
            (told,) = (await run_batch(stage.service, {"job_id": "a", "name": "end", "argument": argument})).body
            # It ends behind the outcome, and before another job begins.
            (after,) = (await run_batch(stage.service, {"job_id": "c", "name": "end", "argument": 1})).body
        assert told["type"] == kind
        assert [line["event"] for line in lines if line["log_level"] == "error"] == ["worker.loop_stopped"]
        assert (after["type"], stage.stopped) == ("success", [])
        await Exchange(stage.service, b"", method="DELETE", query="job_id=beside").run()
    assert exchange.by_id["beside"]["status"] == 499
    stage.service.close()


async def test_a_job_may_end_between_a_look_at_it_and_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread takes `stop` away: whoever reads it twice may have nothing to call."""
    monkeypatch.setattr(Item, "stop", Vanishing(Item.__dict__["stop"]))
    stage = Stage()
    exchange = Exchange(stage.service, packed({"job_id": "a", "name": "stay", "argument": "a", "timeout": PATIENCE_S}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run)
        await stage.wait_begun()
        assert stage.service.hand_back("the worker stops") == 0
    gone = Exchange(stage.service, packed({"job_id": "b", "name": "stay", "argument": "b", "timeout": PATIENCE_S}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gone.run)
        await stage.wait_begun()
        answer = await Exchange(stage.service, b"", method="DELETE", query="job_id=b").run()
        assert answer.status == 204
    stage.service.close()
    assert stage.stopped == ["a", "b"]


async def test_one_that_tidies_up_past_its_timeout_is_cancelled_once_and_keeps_no_other_away() -> None:
    stage = Stage()
    tidied: list[str] = []
    go = asyncio.Event()

    @stage.app.job("tidy up")
    async def tidy_up(argument: Any, /) -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            await go.wait()  # as to close a connection
            tidied.append(argument)

    @stage.app.job("let go")
    async def let_go(argument: Any, /) -> None:
        go.set()

    service = Service(stage.app.jobs, ServiceConfig(concurrency=2))
    with capture_logs() as lines:
        told = await run_batch(service, {"job_id": "a", "name": "tidy up", "argument": "a", "timeout": 1})
    assert told.by_id["a"]["reason"] == "timeout"
    assert next(line["why"] for line in lines if line["event"] == "worker.overrun") == LINGERS
    assert (service.refusing(), service.free, [item.job_id for item, _ in service.stuck()]) == (None, 1, ["a"])
    after = await run_batch(service, {"job_id": "b", "name": "let go"})
    assert after.by_id["b"]["type"] == "success"
    with trio.fail_after(PATIENCE_S):
        while service.free < 2:
            await trio.sleep(0.001)  # a thread's loop goes on
    assert tidied == ["a"]
    service.close()
