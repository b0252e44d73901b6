"""A worker that pulls with real processes: what it asks for, and what a process that is ended leaves behind."""

from collections.abc import Callable
from pathlib import Path

import trio

from jqd.worker.service import Service, ServiceConfig
from tests.worker.pooled import PATIENCE_S, here, served, wait_until
from tests.worker.test_pull import FakeDaemon, job, pulling

__all__ = ["here"]

PLAIN = """
import time
from pathlib import Path
from jqd import App

app = App()

@app.job()
def plain(argument, /):
    return argument

@app.job()
def watch(argument, /):
    Path(argument).touch()
    time.sleep(600)
"""


def watches(jobs: int, letter: str, max_retry: int = 0) -> list[dict[str, object]]:
    return [job(f"{letter}{n}", "watch", f"{letter}{n}", max_retry) for n in range(jobs)]


async def taken(daemon: FakeDaemon, holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            daemon.seen = trio.Event()
            await daemon.seen.wait()


async def test_after_jobs_past_their_timeout_it_asks_again_as_soon_as_their_processes_are_filled() -> None:
    """Nothing is in hand then whose outcome would tell that there is room."""
    late = [each | {"timeout": 0.3} for each in watches(2, "p")]
    daemon = FakeDaemon(late, [job("c", "plain", 3)])
    async with served(processes=2, source=PLAIN) as (_, pool):
        service = Service(pool.jobs, ServiceConfig(concurrency=2), executor=pool)
        async with pulling(daemon, service=service, pool=pool):
            await taken(daemon, lambda: "c" in daemon.taken)
    assert [daemon.taken[each].get("reason") for each in ("p0", "p1", "c")] == ["timeout", "timeout", None]
    assert daemon.taken["c"]["type"] == "success"


async def test_it_asks_for_as_many_plain_functions_as_it_has_processes_and_for_async_ones_beside_them() -> None:
    daemon = FakeDaemon(watches(8, "p"))
    async with served(processes=1) as (service, pool):
        assert (pool.free("watch"), pool.free("doze"), pool.free(), pool.free("nobody")) == (1, 8, 8, 8)
        async with pulling(daemon, service=service, pool=pool):
            await taken(daemon, lambda: len(daemon.taken) == 7)
            assert {how["type"] for how in daemon.taken.values()} == {"refused"}, "all but the first go back"
            assert (service.jobs_in_flight, pool.free("watch"), pool.free("doze")) == (1, 0, 8)
            daemon.give(watches(7, "q"), [job("d", "doze", 1)])
            await taken(daemon, lambda: "d" in daemon.taken)
            assert daemon.taken["d"]["type"] == "success"
            assert {how["type"] for name, how in daemon.taken.items() if name[0] == "q"} == {"refused"}
            assert daemon.polled[1]["max_jobs"] == 7, "the one at work takes no place of an async one"
            await wait_until(Path("p0").exists)
            service.hand_back("it ends")


async def test_a_worker_whose_functions_are_all_plain_asks_for_no_more_than_its_processes() -> None:
    daemon = FakeDaemon(watches(1, "p"))
    async with (
        served(processes=2, source=PLAIN) as (service, pool),
        pulling(daemon, service=service, pool=pool),
    ):
        await wait_until(lambda: Path("p0").exists() and len(daemon.polled) > 1)
        assert [poll["max_jobs"] for poll in daemon.polled[:2]] == [2, 1]
        service.hand_back("it ends")
