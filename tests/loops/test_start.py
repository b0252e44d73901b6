"""When a daemon that starts begins to listen, and to start jobs."""

import io
import random
from pathlib import Path

import pytest
import trio

from jqd.config import Config
from jqd.daemon import SETTINGS_S, Daemon
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened
from tests.loops.house import TrioClock


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
