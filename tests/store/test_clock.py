"""The wall clock of the server's machine jumps while two daemons hold jobs: no lock is lost early, none stays stuck.

Real loops on a real server whose clock is moved from outside (skew.c); leases run on the daemons' own clock, which the
test lets jump.
"""

import shutil
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import trio

from jqd.domain.job import Fate, Outcome, State
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import JournalConfig, open_journal
from jqd.runner import Stopped
from jqd.store import JobView, StoreConfig, open_store
from tests.harness.files import MemoryFiles
from tests.loops.conftest import threads_in_place as threads_in_place
from tests.loops.house import House, TrioClock, offer, until
from tests.valkey import REDIS, Valkey, valkey

GCC = shutil.which("gcc")
HOUR_MS = 3_600_000
JOBS = 4

Jump = Callable[[int], None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled skew.c."""
    if GCC is None:
        pytest.skip("gcc is not installed: nothing can move the server's clock")
    built = tmp_path_factory.mktemp("skew") / "skew.so"
    source = Path(__file__).with_name("skew.c")
    subprocess.run([GCC, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(built), str(source)], check=True)
    return built


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, library: Path, tmp_path: Path) -> Iterator[tuple[Valkey, Jump]]:
    """A server, and what sets its clock so many milliseconds beside the true one."""
    if request.param == "redis" and REDIS is None:
        pytest.skip("redis-server is not installed")
    file = tmp_path / "skew"
    file.write_bytes(struct.pack("<q", 0))

    def jump(ms: int) -> None:
        with file.open("r+b") as mapped:  # in place: the server has it mapped
            mapped.write(struct.pack("<q", ms))

    env = {"LD_PRELOAD": str(library), "SKEW_FILE": str(file)}
    with valkey(binary=REDIS if request.param == "redis" else None, env=env) as one:
        yield one, jump


class Twin:
    """One of the daemons, without its edge; its worker keeps what it is given."""

    def __init__(self, here: House) -> None:
        self.here = here
        self.ids: list[str] = []
        self.awaited = 0

    def fences(self) -> list[int]:
        """Of all that was given to its worker, in order."""
        return [one.fence for _, _, held in self.here.runner.given for one in held]

    def started(self) -> list[str]:
        """Ids of the same."""
        return [one.job.id for _, _, held in self.here.runner.given for one in held]

    async def push(self, count: int) -> None:
        """Jobs that came in here."""
        journal = self.here.journal
        ids = journal.ids.take(count)
        body = encode_jobs(Head(ids.first, 1), msgspec.msgpack.encode([{"name": "a"}] * count))
        await journal.wsync(journal.write(Lane.JOBS, count, body))
        self.ids += ids.ids()

    def end_all(self) -> None:
        """Its worker says that all it has succeeded."""
        held = [one for _, _, batch in self.here.runner.given for one in batch]
        outcomes = [Outcome(one.job.id, one.fence, Fate.SUCCEEDED, "a", 0, 1) for one in held]
        self.here.runner.stop(Stopped(outcomes, []))


@asynccontextmanager
async def twin(url: str, sysid: str) -> AsyncIterator[Twin]:
    """A daemon on the server's own clock; it lives until `live` is cancelled."""
    clock = TrioClock()
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal, open_store(StoreConfig(url)) as store:
        real: Any = store
        yield Twin(House(journal, real, clock, sysid))


async def live(one: Twin, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    """All its loops, until the scope is cancelled: then it is dead at once, as by kill -9."""
    with trio.CancelScope() as life:
        async with trio.open_nursery() as nursery:
            here = one.here
            await here.join(nursery)
            for loop in (here.dispatch.run, here.settle.run, here.settle.run_returns, here.reap.run):
                await nursery.start(loop)
            task_status.started(life)


@pytest.mark.parametrize("jumps_ms", [[HOUR_MS, -HOUR_MS], [-HOUR_MS, HOUR_MS]], ids=str)
async def test_a_jump_of_the_servers_clock_loses_no_lock_and_leaves_none_stuck(
    server: tuple[Valkey, Jump], jumps_ms: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    own, jump = server
    async with twin(own.url, "d1") as one, twin(own.url, "d2") as two, trio.open_nursery() as nursery:
        life = await nursery.start(live, one)
        other_life = await nursery.start(live, two)
        lease_s = one.here.membership.config.lease_s
        one.here.runner.offers = {"a": offer()}
        await one.push(JOBS)
        await until(lambda: len(one.started()) == JOBS)
        one.here.runner.offers, two.here.runner.offers = {}, {"a": offer()}
        for ms in jumps_ms:
            jump(ms)
            await trio.sleep(lease_s * 1.5)
            assert one.here.membership.trusts(), "it renews as ever"
            assert two.started() == [], "what is held stays held, whatever the clock says"
        life.cancel()
        jump(0)
        died_s = trio.current_time()
        two.awaited = JOBS
        await until(lambda: len(two.started()) == two.awaited)
        assert lease_s - one.here.membership.config.renew_s <= trio.current_time() - died_s <= 2 * lease_s
        assert sorted(two.started()) == sorted(one.started())
        for ms in [*jumps_ms, 0]:
            jump(ms)
            await two.push(1)
            two.awaited += 1
            await until(lambda: len(two.started()) == two.awaited)
        claims = list(dict.fromkeys([*one.fences(), *two.fences()]))
        assert claims == sorted(claims), "a later claim has a greater fence"
        assert len(claims) == 2 + len(jumps_ms) + 1, "one for each claim, and none twice"
        two.end_all()
        await ended(own, [*one.ids, *two.ids])
        other_life.cancel()


async def ended(server: Valkey, job_ids: list[str]) -> None:
    """All of them succeeded, and nobody holds anything."""
    async with open_store(StoreConfig(server.url)) as store:
        with trio.fail_after(60):
            while (await store.stats()).ended < len(job_ids):
                await trio.sleep(0.1)
        views = [await store.get_job(job_id) for job_id in job_ids]
        assert all(isinstance(view, JobView) and view.state is State.SUCCEEDED for view in views)
        assert (await store.stats()).running == 0


async def test_the_clock_that_jumps_is_the_one_that_scripts_read(server: tuple[Valkey, Jump]) -> None:
    """Else the test above would show nothing."""
    own, jump = server
    with redis.Redis.from_url(own.url) as client:
        before, _ = client.time()
        for ms in (-HOUR_MS, HOUR_MS):
            jump(ms)
            wanted = before + ms // 1000
            # A server may keep the time it read for some milliseconds.
            told = (int(client.eval("return redis.call('TIME')[1]", 0)) for _ in range(10_000))
            assert any(wanted <= seconds < wanted + 10 for seconds in told)
