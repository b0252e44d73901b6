"""A worker that is full: stuck threads, and more jobs than there is room for."""

from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from jqd.testing.clock import ManualClock
from jqd.worker.service import PATIENCE_S as PATIENCE
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import PATIENCE_S, Exchange, gated, jobs, packed, run_batch

# ---------------------------------------------------------------- stuck threads


async def test_a_function_past_its_timeout_is_reported_and_keeps_its_thread_alone() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=2))
    exchange = await run_batch(service, *jobs("gate", 1, timeout=0.05), *jobs("echo", 2))
    stuck = exchange.by_id["gate-0"]
    assert (stuck["type"], stuck["reason"], stuck["should_retry"]) == ("failure", "timeout", True)
    assert exchange.by_id["echo-1"]["result"] == 1, "the other thread went on with the batch"
    health = await Exchange(service, b"", method="GET").run()
    assert health.body["stuck"] == 1
    gate.go.set()
    await wait_recovered(service)
    service.close()


async def test_a_function_past_its_timeout_whose_daemon_has_gone_counts_as_stuck() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=2))
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
    with trio.fail_after(PATIENCE_S):
        while (await Exchange(service, b"", method="GET").run()).body["stuck"] != 1:
            await trio.lowlevel.checkpoint()
    gate.go.set()
    await wait_recovered(service)
    service.close()


async def test_when_all_threads_are_stuck_batches_are_refused_and_the_rest_handed_back() -> None:
    app, gate = gated()
    service = Service(app.jobs, ServiceConfig(concurrency=2))
    with capture_logs() as lines:
        exchange = await run_batch(service, *jobs("gate", 5, timeout=0.05))
    (said,) = [line for line in lines if line["event"] == "worker.saturated"]
    assert (said["log_level"], said["stuck"]) == ("error", 2)
    assert "restart" in said["next"]
    how = sorted(outcome.get("reason", outcome["type"]) for outcome in exchange.body)
    assert how.count("timeout") == 2
    assert set(how) <= {"timeout", "refused", "started"}, "what did not begin costs no attempt"
    assert len(gate.ran) == 2, "never more threads than run at once"
    refused = await run_batch(service, *jobs("echo", 1))
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "threads are stuck" in refused.body["detail"]
    gate.go.set()
    await wait_recovered(service)
    assert (await run_batch(service, *jobs("echo", 1))).by_id["echo-0"]["type"] == "success"
    service.close()


async def wait_recovered(service: Service) -> None:
    """Return when no thread is stuck any more; fails when that takes too long."""
    with trio.fail_after(PATIENCE_S):
        while (await Exchange(service, b"", method="GET").run()).body["stuck"]:
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
