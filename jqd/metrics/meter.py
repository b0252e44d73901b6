"""The metrics of a daemon: what it counts, and gauges that it samples."""

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

STEP_S = 1.0  # between looks at how far the store is behind: an alert waits for minutes
STEPS_MAX = 3_600  # an hour of them, some 300 kB; a longer lag is told as that hour


class Meter:
    """What `GET /metrics` reads. Without a daemon around it, it has the numbers of the store only."""

    def __init__(self, _: SettingTable, clock: Clock, config: MetricsConfig | None = None) -> None:
        self.config = config or MetricsConfig()
        self.tally, self.totals = Tally(), Totals(self.config)
        self.tally.readers.append(self.totals.add)
        self.own: Callable[[], Iterable[Metric]] = tuple
        """Gives the samples of this daemon's own parts."""
        self.disk_free_bytes: int | None = None
        """Free bytes of the journal's disk at the last look; None: not known."""
        self.lag = Lag()
        self._clock = clock

    def look_at_disk(self, directory: Path) -> Iterable[Diagnostic]:
        """Note how much room there is; called from a thread. Raises OSError."""
        state = os.statvfs(directory)
        self.disk_free_bytes = state.f_bavail * state.f_frsize
        return ()

    async def watch(
        self, end: Callable[[], int], behind: Callable[[], int], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Note each second how far the journal is, and how many of its bytes are not in the store."""
        task_status.started()
        while True:
            now_s, written = self._clock.mono_s(), end()
            self.lag.note(now_s, written, written - behind())
            await rest(STEP_S)


class Lag:
    """For how long the oldest record that is not in the store has been in the journal. Pure."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._steps: deque[tuple[float, int]] = deque(maxlen=STEPS_MAX)

    def note(self, now_s: float, end: int, applied: int) -> None:
        """Note how far the store is behind. `end`: the journal's end; `applied`: the position up to which the store has
        it.
        """
        steps = self._steps
        steps.append((now_s, end))
        while len(steps) > 1 and steps[1][1] <= applied:
            steps.popleft()
        self.seconds = 0.0 if applied >= end else now_s - steps[0][0]
