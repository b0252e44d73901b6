"""DELETE at a worker: jobs that wait, tasks, threads that look and threads that do not."""

import threading
from typing import Any

import pytest
import trio
import trio.testing

from jqd import App, Cancelled, Failed, current
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import Exchange, packed

PATIENCE_S = 60.0  # for a thread to be scheduled on a busy machine


class Stage:
    """Jobs that stand still until they are told to go on, or to stop."""

    def __init__(self, concurrency: int = 2) -> None:
        self.app = App()
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.ran: list[str] = []
        self.standing: dict[str, trio.Event] = {}
        for function in (self.task, self.stubborn, self.untidy):
            self.app.job()(function)
        self.app.job("thread")(lambda argument, /: self._stand(argument))
        self.app.job("watching")(self.watching)
        self.service = Service(self.app.jobs, ServiceConfig(concurrency=concurrency))

    async def task(self, argument: str, /) -> None:
        self.ran.append(argument)
        self.standing.setdefault(argument, trio.Event()).set()
        await trio.sleep_forever()

    async def stubborn(self, argument: str, /) -> str:
        """Finishes what it began."""
        with trio.CancelScope(shield=True):
            self.standing.setdefault(argument, trio.Event()).set()
            await trio.to_thread.run_sync(self.go.wait, PATIENCE_S)
        return argument

    async def untidy(self, argument: str, /) -> None:
        try:
            await self.task(argument)
        finally:
            raise ValueError("the printer jammed meanwhile")

    def watching(self, argument: Any, /) -> str:
        context = current()
        self._stand(argument["id"])
        if context.cancelled and argument["then"] == "cancelled":
            raise Cancelled("half of the pages are printed")
        if context.cancelled and argument["then"] == "failed":
            raise Failed("no paper")
        return "done"

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.begun.acquire, True, PATIENCE_S)

    async def wait_standing(self, name: str) -> None:
        await self.standing.setdefault(name, trio.Event()).wait()

    async def cancel(self, *job_ids: str, batch_id: str | None = None) -> Exchange:
        query = "&".join(f"job_id={job_id}" for job_id in job_ids)
        headers = {} if batch_id is None else {"JQD-Batch-Id": batch_id}
        return await Exchange(self.service, b"", headers, method="DELETE", query=query).run()

    def _stand(self, argument: str) -> str:
        self.ran.append(argument)
        self.begun.release()
        assert self.go.wait(PATIENCE_S)
        return argument


def job(name: str, job_id: str, argument: Any = None, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "name": name, "argument": job_id if argument is None else argument, **more}


def told(outcome: dict[str, Any]) -> tuple[Any, ...]:
    return outcome["type"], outcome.get("status"), outcome.get("should_retry"), outcome.get("message")


CANCELLED = ("failure", 499, False, "cancelled")


async def test_a_task_is_cancelled_and_its_neighbour_is_not() -> None:
    stage = Stage()
    exchange = Exchange(stage.service, packed(job("task", "a"), job("stubborn", "b")))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_standing("a")
            await stage.wait_standing("b")
            assert (await stage.cancel("a", batch_id="b-0")).status == 404, "meant for what it was sent with before"
            assert (await stage.cancel("a", batch_id="b-1")).status == 204
            (outcome,) = await exchange.next_outcomes()
            assert (outcome["job_id"], *told(outcome)) == ("a", *CANCELLED)
            stage.go.set()
    assert exchange.by_id["b"]["result"] == "b"


async def test_what_has_not_begun_never_begins() -> None:
    stage = Stage(concurrency=1)
    waiting = [job("task", "t2"), job("thread", "p2")]
    exchange = Exchange(stage.service, packed(job("task", "t1"), job("thread", "p1"), *waiting))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_standing("t1")
            await stage.wait_begun()
            assert (await stage.cancel("t2", "p2")).status == 204
            assert (await stage.cancel("t2")).status == 404, "it has ended by now"
            stage.go.set()
            assert (await stage.cancel("t1")).status == 204
    assert {name: told(exchange.by_id[name]) for name in ("t1", "t2", "p2")} == dict.fromkeys(
        ("t1", "t2", "p2"), CANCELLED
    )
    assert exchange.by_id["p1"]["result"] == "p1"
    assert sorted(stage.ran) == ["p1", "t1"]
    stage.service.close()


async def test_a_task_that_waits_for_its_turn_never_begins() -> None:
    stage = Stage(concurrency=1)
    first = Exchange(stage.service, packed(job("task", "a")))
    second = Exchange(stage.service, packed(job("task", "b")))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.run)
            await stage.wait_standing("a")
            nursery.start_soon(second.run)
            await trio.testing.wait_all_tasks_blocked()
            assert (await stage.cancel("b")).status == 204
            assert (await stage.cancel("a")).status == 204
    assert told(second.by_id["b"]) == CANCELLED
    assert stage.ran == ["a"]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("cancelled", ("failure", 499, False, "cancelled: half of the pages are printed")),
        ("failed", ("failure", 499, False, "cancelled: Failed: no paper")),
        ("done", ("success", None, None, None)),
    ],
)
async def test_a_thread_that_looks_decides_how_it_ends(then: str, expected: tuple[Any, ...]) -> None:
    stage = Stage()
    exchange = Exchange(stage.service, packed(job("watching", "a", {"id": "a", "then": then})))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_begun()
            assert (await stage.cancel("a")).status == 204
            stage.go.set()
    assert told(exchange.by_id["a"]) == expected
    stage.service.close()


async def test_a_thread_that_does_not_look_ends_as_it_ends() -> None:
    stage = Stage()
    exchange = Exchange(stage.service, packed(job("thread", "a")))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_begun()
            assert (await stage.cancel("a")).status == 204
            stage.go.set()
    assert exchange.by_id["a"]["result"] == "a"
    stage.service.close()


async def test_an_outcome_on_its_way_to_the_answer_stands() -> None:
    stage = Stage()
    stage.go.set()
    exchange = Exchange(stage.service, packed(job("thread", "a"), job("task", "b")))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_standing("b")
            (outcome,) = await exchange.next_outcomes()
            assert (outcome["job_id"], outcome["type"]) == ("a", "success")
            assert (await stage.cancel("a", "b")).status == 204, "one of them was in flight"
    assert told(exchange.by_id["b"]) == CANCELLED
    stage.service.close()


async def test_what_a_task_says_while_it_is_stopped_is_kept() -> None:
    stage = Stage()
    exchange = Exchange(stage.service, packed(job("untidy", "a")))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await stage.wait_standing("a")
            await stage.cancel("a")
    assert told(exchange.by_id["a"]) == ("failure", 499, False, "cancelled: ValueError: the printer jammed meanwhile")


async def test_a_timeout_is_no_cancel() -> None:
    stage = Stage()
    exchange = await Exchange(stage.service, packed(job("task", "a", timeout=0.01))).run()
    assert (exchange.by_id["a"]["reason"], exchange.by_id["a"].get("status")) == ("timeout", None)


@pytest.mark.parametrize(("query", "status", "says"), [("", 400, "name it"), ("job_id=b", 404, "not in flight here")])
async def test_what_cannot_be_cancelled_is_said(query: str, status: int, says: str) -> None:
    exchange = await Exchange(Stage().service, b"", method="DELETE", query=query).run()
    assert exchange.status == status
    assert says in exchange.body["detail"]


def test_a_function_that_is_called_by_hand_has_no_attempt_to_ask_about() -> None:
    with pytest.raises(RuntimeError, match="no job runs here"):
        current()
