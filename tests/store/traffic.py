"""Jobs pushed at a steady pace to real daemons while their store fails over, and what became of them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jqd.client import Client, JqdClientError
from tests.directories import short_directory
from tests.live.harness import Daemon, Worker
from tests.live.test_crash import wait_all_ended
from tests.store.ensemble import wait_until

# A short lease: whoever may claim again in a new life of the store waits for one. A store that is paused, not dead,
# is noticed after the timeout.
SETTINGS = {
    "JQD_LEASE__LEASE_S": "2",
    "JQD_LEASE__RENEW_S": "0.5",
    "JQD_LEASE__MARGIN_S": "0.5",
    "JQD_STORE__TIMEOUT_S": "1",
}
BATCH = 10
PAUSE_S = 0.1  # between two batches: a load that one test machine bears beside all its servers


class Pusher(threading.Thread):
    """Pushes until it is told to stop. No push may fail, whatever the store does."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[str] = []
        self.failed: JqdClientError | None = None
        self._stop_now = threading.Event()
        self._url = url

    def run(self) -> None:
        with Client(self._url) as client:
            while not self._stop_now.wait(PAUSE_S):
                try:
                    self.acknowledged += client.push_many([{"name": "square", "argument": {"n": 1}}] * BATCH)
                except JqdClientError as error:
                    self.failed = error
                    return

    def finish(self) -> list[str]:
        """Stop; returns the ids of what was acknowledged."""
        self._stop_now.set()
        self.join(timeout=30)
        assert self.failed is None, self.failed
        return self.acknowledged


class Traffic(NamedTuple):
    """Two daemons at work."""

    one: Daemon
    two: Daemon
    worker: Worker
    pusher: Pusher

    def wait_running(self) -> None:
        """Return when what is pushed now runs at both daemons."""
        for daemon in (self.one, self.two):
            with Client(daemon.url) as client:
                wait_all_ended(daemon.url, client.push_many([{"name": "square", "argument": {"n": 2}}] * BATCH))

    def expect_nothing_lost(self) -> None:
        """All that was acknowledged has run and ended; what ran twice was in a hand when the store was lost."""
        acknowledged = self.pusher.finish()
        assert acknowledged, "nothing was pushed"
        with Client(self.two.url) as client:
            wait_until(lambda: {job.job_id for job in client.jobs(state="succeeded")} >= set(acknowledged))
        starts = self.worker.starts()
        assert set(acknowledged) <= set(starts)
        assert max(starts.values()) <= 2
        assert self.worker.stop() == 0
        assert [self.one.stop(), self.two.stop()] == [0, 0]


@contextmanager
def traffic(url: str, base: Path) -> Iterator[Traffic]:
    """Two daemons of one store, a worker of both, and somebody who pushes."""
    with short_directory() as short:
        flags = ("--store", url)
        with (
            Daemon(short / "one", *flags, env=SETTINGS) as one,
            Daemon(short / "two", *flags, env=SETTINGS) as two,
            Worker(base / "book", one.url, two.url) as worker,
        ):
            pusher = Pusher(one.url)
            pusher.start()
            now = Traffic(one, two, worker, pusher)
            now.wait_running()
            yield now
