"""When a daemon that starts begins to listen, and to start jobs."""

import io
import random
from pathlib import Path

import pytest
import trio

from jqd.config import Config
from jqd.daemon import SETTINGS_S, Daemon
from jqd.domain.job import State, lease_claim
from jqd.loops.settings import SettingsUpkeep
from jqd.store import JobView, StoreConfig
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened
from tests.loops.house import TrioClock, until
from tests.simulation.node import without_edge

SILENCE_S = 10


@pytest.mark.parametrize("stops", [False, True])
async def test_no_job_or_token_is_judged_before_the_own_settings_are_read(
    autojump_clock: None, stops: bool, logged: io.StringIO
) -> None:
    """However long that takes: a revoked token would be let in. Those of a store are waited for briefly."""
    clock, goes_on, stop = TrioClock(), list[bool](), trio.Event()

    async def know(daemon: Daemon) -> None:
        goes_on.append(await daemon._know_settings(stop))

    async with opened(MemoryFiles()) as journal, trio.open_nursery() as nursery:
        config = Config(data_dir=Path("/nowhere"), store=StoreConfig(url="fake:"))
        daemon = Daemon(config, journal, [FakeStore(clock)], clock, random.Random(1))
        nursery.start_soon(know, daemon)
        await trio.sleep(60)
        assert goes_on == []
        assert "daemon.reads_settings" in logged.getvalue()
        assert daemon.control.in_a_line().startswith("takes jobs NOT: the settings in its journal are not")
        (stop if stops else daemon.workers.settings.loaded).set()
        await trio.sleep(0 if stops else SETTINGS_S + 0.01)
    assert goes_on == [not stops]


async def test_no_worker_is_silent_while_the_daemon_does_not_listen(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 16 s a daemon read the settings of its journal, and ended the attempts of workers that it let say nothing."""
    store, read, ready = FakeStore(TrioClock()), trio.Event(), trio.Event()

    async def was_read(self: SettingsUpkeep, first: int, end: int) -> bool:
        await read.wait()
        return True

    monkeypatch.setattr(SettingsUpkeep, "_was_read", was_read)
    bench, stop = StoreBench(store, TrioClock()), trio.Event()
    await store.look(fresh=True)
    owner = await bench.join()
    await bench.add(bench.make("mail"))
    (held,) = await bench.claim(owner, "mail")
    await bench.settle(lease_claim(held, worker="w", silence_s=SILENCE_S, started_at_ms=1))
    await store.release_sysid(owner)

    async def is_held() -> bool:
        view = await store.get_job(held.job.id)
        assert isinstance(view, JobView)
        return view.state is State.RUNNING

    async with opened(MemoryFiles()) as journal, trio.open_nursery() as nursery:
        config = Config(data_dir=Path("/nowhere"), store=StoreConfig(url="fake:"))
        with without_edge(0):
            daemon = Daemon(config, journal, [store.another_client()], TrioClock(), random.Random(1))
            nursery.start_soon(lambda: daemon.run(stop=stop, listener=None, ready=lambda url: ready.set()))
            await until(lambda: daemon.partitions[0].membership.settled)
            began = journal.end
            await trio.sleep(600)
            assert (await is_held(), journal.end, ready.is_set()) == (True, began, False)
            read.set()
            await ready.wait()
            await trio.sleep(SILENCE_S - 1)
            assert await is_held()
            await trio.sleep(3)
            assert not await is_held(), "now it could have said something"
            stop.set()
