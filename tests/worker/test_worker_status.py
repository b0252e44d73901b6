"""What a worker says while something is wrong with it: in its registration, in its log, from beside a blocked loop."""

import logging
import sys
import time
from typing import Any, cast

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from jqd import App
from jqd.domain.clock import SystemClock
from jqd.worker.batch import Batch, Item
from jqd.worker.job_log import OURS, collect_logs
from jqd.worker.service import Service, ServiceConfig
from jqd.worker.watchdog import Watchdog
from jqd.worker.wire import MSGPACK, JobIn
from jqd.worker.worker_status import STUCK_EVERY_S, WorkerStatus, slots_of
from tests.worker.exchange import Exchange, packed

PATIENCE_S = 60.0  # for a thread to be scheduled on a busy machine

app = App()


@app.job(timeout=5, max_retry=0)
def plain(argument: Any, /) -> None: ...


@app.job()
async def task(argument: Any, /) -> None: ...


class Sick:
    """A service with a job that hangs."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.since_s = trio.current_time()
        self.items = [Item(Batch(MSGPACK, 1), JobIn(name="plain", job_id="01KC"), plain)]

    def trouble(self) -> str | None:
        return self.why

    def stuck(self) -> list[tuple[Item, float]]:
        return [(item, trio.current_time() - self.since_s) for item in self.items]


async def test_what_hangs_is_said_again_and_again_and_trouble_is_registered(autojump_clock: MockClock) -> None:
    service, hurried = Sick(), []
    said = WorkerStatus(cast("Service", service), app.jobs, {"name": "one"})
    jobs = [{"name": "plain", "timeout": 5, "max_retry": 0}, {"name": "task"}]
    assert said.spec() == {"name": "one", "jobs": jobs}
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(said.watch, lambda: hurried.append(trio.current_time()))
            await trio.sleep(2.5 * STUCK_EVERY_S)
            service.why = "16 threads are stuck"
            await trio.sleep(STUCK_EVERY_S)
            assert said.spec()["trouble"] == "16 threads are stuck"
            service.why, service.items = None, []
            await trio.sleep(STUCK_EVERY_S)
            assert "trouble" not in said.spec()
            nursery.cancel_scope.cancel()
    assert len(hurried) == 2, "its daemons are told when it comes and when it goes"
    told = [(line["event"], line["log_level"], line["threads"]) for line in lines]
    assert told == [("worker.stuck", "warning", 1)] * 3 + [("worker.stuck", "error", 1)]
    assert lines[0]["jobs"] == "01KC (plain) for 1 s"


async def test_a_blocked_loop_is_said_with_the_job_that_blocks_it_and_the_place() -> None:
    blocking = App()

    @blocking.job()
    async def block(argument: float, /) -> None:
        time.sleep(argument)  # noqa: ASYNC251 - what it must not do

    @blocking.job()
    async def wait() -> None:
        await trio.sleep_forever()

    service = Service(blocking.jobs, ServiceConfig(concurrency=2))
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watchdog(service.tasks, SystemClock(), silent_s=0.1).beat)
            await trio.testing.wait_all_tasks_blocked()
            jobs: list[dict[str, Any]] = [
                {"job_id": "b", "name": "wait"},
                {"job_id": "a", "name": "block", "argument": 1.0},
            ]
            exchange = Exchange(service, packed(*jobs))
            nursery.start_soon(exchange.run)
            await exchange.next_outcomes()
            nursery.cancel_scope.cancel()
    said = [line for line in lines if line["event"] == "worker.loop_blocked"]
    during = [line for line in said if line["jobs"]]  # a busy machine may be slow before, too
    assert (during[0]["jobs"], "time.sleep(argument)" in during[0]["exception"]) == ("a (block)", True)


class Saying:
    """Jobs that log as users' code does, each kind in its own way of running."""

    def __init__(self) -> None:
        self.app = App()
        self.log = logging.getLogger("shop")
        self.app.job("plain")(self.plain)
        self.app.job("task")(self.task)
        self.app.job("foreign", loop="asyncio")(self.task)

    def plain(self, argument: Any, /) -> None:
        self.log.warning("said %s", argument)

    async def task(self, argument: Any, /) -> None:
        try:
            raise ValueError(argument)
        except ValueError:
            self.log.exception("said %s", argument)


async def test_what_a_jobs_code_logs_carries_its_id_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    saying, names = Saying(), ("plain", "task", "foreign")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    for name in OURS:
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    collect_logs("info")
    collect_logs("info")
    with capture_logs() as lines:
        service = Service(saying.app.jobs)
        await Exchange(
            service, packed(*[{"job_id": f"id-{name}", "name": name, "argument": name} for name in names])
        ).run()
        service.close()
        saying.log.info("outside")
        logging.getLogger("httpx2").info("of a registration")
    lines = [line for line in lines if line["component"] == "job"]
    told = {line.get("job_id"): line for line in lines}
    assert len(lines) == len(told) == 4, "once each, also where it is set up twice"
    assert [(told[f"id-{name}"]["event"], told[f"id-{name}"]["name"]) for name in names] == [
        (f"said {name}", name) for name in names
    ]
    assert "ValueError: task" in told["id-task"]["exception"]
    assert (told[None]["event"], told[None]["logger"], told[None]["log_level"]) == ("outside", "shop", "info")


def test_slots_are_those_of_what_the_app_has() -> None:
    both, plains, tasks = app.jobs, {"plain": plain}, {"task": task}
    assert [slots_of(jobs, 16, 0) for jobs in (both, plains, tasks)] == [16, 16, 16]
    assert [slots_of(jobs, 16, 4) for jobs in (both, plains, tasks)] == [16, 4, 16]
