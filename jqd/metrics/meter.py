"""The metrics that a daemon collects: counters, and gauges that it samples."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import trio
from prometheus_client import Metric

from jqd.domain.beat import rest
from jqd.domain.clock import Clock
from jqd.domain.diagnostic import Diagnostic
from jqd.domain.settings import SettingTable
from jqd.domain.tally import Tally
from jqd.metrics.config import MetricsConfig
from jqd.metrics.work import Totals

STEP_S = 1.0  # between samples of the lag; alerts wait for minutes
STEPS_MAX = 3_600  # samples of an hour, some 300 kB; a longer lag is shown as an hour


class Meter:
    """Collects the data of `GET /metrics`. Without a daemon around it, it has only the store's numbers."""

    def __init__(self, _: SettingTable, clock: Clock, config: MetricsConfig | None = None) -> None:
        self.config = config or MetricsConfig()
        self.tally, self.totals = Tally(), Totals(self.config)
        self.tally.readers.append(self.totals.add)
        self.own: Callable[[], Iterable[Metric]] = tuple
        """Returns the metric families about the daemon itself; the daemon sets it."""
        self.disk_free_bytes: int | None = None
        """Free bytes of the journal's disk when last examined; None: unknown."""
        self.lag = Lag()
        self._clock = clock

    def look_at_disk(self, directory: Path) -> Iterable[Diagnostic]:
        """Note the free bytes of the directory's disk. Returns no findings. Called from a thread. Raises OSError."""
        state = os.statvfs(directory)
        self.disk_free_bytes = state.f_bavail * state.f_frsize
        return ()

    async def watch(
        self, end: Callable[[], int], behind: Callable[[], int], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Sample the lag every second, for ever. `end`: returns the position of the journal's end; `behind`: returns
        how many bytes of the journal the store lacks."""
        task_status.started()
        while True:
            now_s, written = self._clock.mono_s(), end()
            self.lag.note(now_s, written, written - behind())
            await rest(STEP_S)


class Lag:
    """Measures for how long the oldest record that the store lacks has been in the journal."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._steps: deque[tuple[float, int]] = deque(maxlen=STEPS_MAX)

    def note(self, now_s: float, end: int, applied: int) -> None:
        """Take a sample. `end`: the journal's end (a position); `applied`: the position up to which the store has
        it."""
        steps = self._steps
        steps.append((now_s, end))
        while len(steps) > 1 and steps[1][1] <= applied:
            steps.popleft()
        self.seconds = 0.0 if applied >= end else now_s - steps[0][0]
