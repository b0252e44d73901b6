"""Async jobs in processes that live on past their timeout: only a loop that is blocked costs their neighbours."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.clock import SystemClock
from jqd.worker import process as processes
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.child import SingleJobBatch
from jqd.worker.crash_isolation import CrashIsolation, CrashSuspects
from jqd.worker.frames import Declaration
from jqd.worker.process import Held
from jqd.worker.wire import JSON, JobIn
from tests.worker.exchange import Exchange, packed
from tests.worker.pooled import here, job, outcomes, served, wait_until

__all__ = ["here"]

MODULE = """
import asyncio
import os
from pathlib import Path
import trio
from jqd import App

app = App()

@app.job(loop="asyncio")
async def tidy_asyncio(argument, /):
    try:
        await asyncio.sleep(600)
    finally:
        while not Path(argument).exists():  # as to close a connection
            await asyncio.sleep(0.005)

@app.job(loop="asyncio")
async def cancel_itself(argument, /):
    asyncio.current_task().cancel()  # which is too late: it returns before it waits again

@app.job()
async def tidy_trio(argument, /):
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            while not Path(argument).exists():
                await trio.sleep(0.005)

@app.job()
async def crash_late(argument, /):
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            while not Path(argument).exists():
                await trio.sleep(0.005)
            os._exit(3)

@app.job()
async def beside(argument, /):
    Path("beside").touch()
    while not Path(argument).exists():
        await trio.sleep(0.005)
"""


async def test_nobody_waits_for_a_job_that_was_given_up_once_it_ends() -> None:
    batch = SingleJobBatch(JSON, 1, lambda *_, **__: None)
    item = Item(batch, JobIn(id="1", name="a"), SimpleNamespace())
    batch.give_up(item, b"")
    batch.put(item, b"")
    with trio.fail_after(1):
        await batch.wait_complete()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
async def test_one_that_tidies_up_past_its_timeout_is_given_up_and_its_neighbours_run_on(loop: str) -> None:
    async with served(source=MODULE) as (service, process_pool), trio.open_nursery() as nursery:
        neighbour = Exchange(service, packed(job("beside", "go", timeout=600)))
        nursery.start_soon(neighbour.run)
        await wait_until(Path("beside").exists)
        pids = [process.pid for process in process_pool._process_pool]
        late = f"tidy_{loop}"
        told = outcomes(await Exchange(service, packed(job(late, "go", timeout=0.5))).run())
        assert (told[late]["type"], told[late]["reason"]) == ("failure", "timeout")
        assert service.free == 6, "it keeps its slot until it has tidied up"
        Path("go").touch()  # noqa: ASYNC240 - it takes microseconds
        await wait_until(lambda: service.free == 8)
    assert outcomes(neighbour)["beside"]["type"] == "success"
    assert [process.pid for process in process_pool._process_pool] == pids
    assert "beside" not in process_pool._suspects


async def test_a_process_with_nothing_but_such_jobs_is_ended_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LINGER_S", 0.01)
    async with served(source=MODULE) as (service, process_pool):
        (before,) = process_pool._process_pool
        await Exchange(service, packed(job("tidy_trio", "never", timeout=0.5))).run()
        await wait_until(lambda: service.free == 8 and before not in process_pool._process_pool)
        assert before.was_killed


async def test_an_outcome_that_comes_twice_counts_once() -> None:
    async with served(source=MODULE) as (service, process_pool):
        pids = [process.pid for process in process_pool._process_pool]
        for _ in range(2):
            (told,) = outcomes(await Exchange(service, packed(job("cancel_itself"))).run()).values()
            assert told["type"] == "success"
        assert [process.pid for process in process_pool._process_pool] == pids


async def test_who_runs_beside_a_job_that_was_given_up_pays_nothing_when_that_takes_the_process_down() -> None:
    """Who is alone is told from all that the process held: with `max_retry` 0 the neighbour was dead."""
    async with served(source=MODULE) as (service, process_pool), trio.open_nursery() as nursery:
        neighbour = Exchange(service, packed(job("beside", "never", timeout=600)))
        nursery.start_soon(neighbour.run)
        await wait_until(Path("beside").exists)
        told = outcomes(await Exchange(service, packed(job("crash_late", "go", timeout=0.5))).run())
        assert told["crash_late"]["reason"] == "timeout"
        Path("go").touch()  # noqa: ASYNC240 - it takes microseconds
        await wait_until(lambda: neighbour.done)
        assert {"beside", "crash_late"} <= process_pool._suspects._ids.keys()
    (handed_back,) = outcomes(neighbour).values()
    assert handed_back["type"] == "refused"
    assert handed_back["message"].endswith("with 2 jobs; next time it is alone")


@pytest.mark.parametrize("is_late", [False, True], ids=["it died", "past its time"])
@pytest.mark.parametrize(
    "ended", [flags for jobs in (1, 2, 3) for flags in product([False, True], repeat=jobs)], ids=str
)
async def test_a_job_pays_for_its_process_only_if_that_held_no_other(ended: tuple[bool, ...], is_late: bool) -> None:
    """However many of them were given up before: those run on, and may be what took it down, or blocked it."""
    attempts, suspects, items = Attempts(SystemClock()), CrashSuspects(), list[Item]()
    for number, is_over in enumerate(ended):
        batch = Batch(JSON, 1)
        items.append(item := Item(batch, JobIn(name="a", job_id=str(number)), Declaration("a", "trio", {})))
        if is_over:
            batch.put(item, b"given up")
    held = {number: Held(number, item, 0.0, is_trial=False) for number, item in enumerate(items)}
    dead: Any = SimpleNamespace(
        held=held, was_killed=False, how="-", pid=1, collect_output=lambda: None, kill=lambda: None
    )
    isolation = CrashIsolation(attempts, suspects)
    if is_late:
        isolation.end_late(dead, items[:1])
    else:
        isolation.settle(dead)
    told = [msgspec.json.decode(item.batch._ready[0])["type"] for item in items if not ended[int(item.job_id)]]
    alone = len(items) == 1
    assert told == ["failure" if alone else "refused"] * ended.count(False)
    assert [item.job_id in suspects for item in items] == [not alone] * len(items)
