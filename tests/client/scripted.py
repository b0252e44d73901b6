"""A client of a daemon that answers as a test says."""

from collections.abc import Callable
from typing import TypeVar

import trio

from jqd.client import (
    Client,
)
from tests.harness.daemon import ScriptedDaemon

T = TypeVar("T")


async def use(daemon: ScriptedDaemon, work: Callable[[Client], T]) -> T:
    """Run blocking `work` beside the daemon."""

    def run() -> T:
        with Client(daemon.url, timeout_s=5) as client:
            return work(client)

    return await trio.to_thread.run_sync(run)
