"""Refuses pushes while the store, the journal or the event loop has more work than it can take.

    watermark        what is measured                                     how often
    waiting_jobs     waiting and scheduled jobs in the store, of all      every LOOK_S; a partition that is away
                     daemons                                              counts with its last answer
    journal_bytes    journal bytes that were never in the store           every STEP_S
    lag_s            how late the event loop runs: the least of the       every STEP_S
                     last LAGS values

Pushes are refused (429) once a value reaches its limit, until it has fallen below a share of the limit: so they are not
refused and accepted by turns. Outcomes, heartbeats, leases, cancels and changes make room and are always accepted.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import trio
from msgspec import Meta

from jqd.domain.beat import next_beat_s, rest
from jqd.domain.errors import Overloaded, StoreAway, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.units import Bytes, Count, Seconds
from jqd.store import Store

STEP_S = 0.5  # between updates of the local values, which cost nothing
LOOK_S = 2.0  # between calls to the store: at 100,000 pushes a second the limit is passed by 2 %
LAGS = 3  # one late update is a pause of the machine; three in a row are too much work
RETRY_S = {"waiting_jobs": 10, "journal_bytes": 5, "lag_s": 2}  # the client's delay; spread to twice that


@dataclass(frozen=True, slots=True)
class BackpressureConfig:
    """Limits of the store, the journal and the event loop at which pushes are refused."""

    waiting_jobs_max: Count = 10_000_000
    """Waiting jobs in the store, dated ones too: some 3.5 GiB of its memory at 200 B a job. Set it by the memory your
    server has."""
    journal_bytes_max: Bytes = 8 << 30
    """Journal here that is not in the store yet: at 20 MB/s of pushes some 7 minutes. Lower it on a small disk."""
    lag_s_max: Seconds = 2.0
    """How late the event loop may run, three times in a row."""
    release: Annotated[float, Meta(gt=0, le=1, description="above 0, at most 1")] = 0.8
    """The share of a limit below which pushes are taken again."""


class Watermark:
    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0.0
        self.limit = 0.0
        self.reached = False

    def note(self, value: float, limit: float, release: float) -> bool:
        before, self.value, self.limit = self.reached, value, limit
        self.reached = value >= limit * (release if before else 1.0)
        return self.reached is not before


class Backpressure:
    def __init__(
        self, config: BackpressureConfig, stores: Sequence[Store], behind: Callable[[], int], source: random.Random
    ) -> None:
        """`behind`: returns how many bytes of the journal at least one partition of the store has never had."""
        self.config = config
        self.refused = 0
        """Pushes refused since the start."""
        self.reached: list[str] = []
        """The names of the watermarks whose limits are reached."""
        self._stores, self._behind, self._source = stores, behind, source
        self._waiting = [0] * len(stores)
        self._lags: deque[float] = deque(maxlen=LAGS)
        self._marks = {name: Watermark(name) for name in RETRY_S}
        self._log = get_logger("backpressure")

    @property
    def reason(self) -> str | None:
        """Why pushes are refused now; None: they are accepted."""
        reasons = [self._describe(mark) for mark in self._marks.values() if mark.reached]
        return "; ".join(reasons) or None

    def refusal(self) -> Overloaded | None:
        """Return the error to answer a push with, and count the refusal; None: accept the push."""
        if not self.reached:
            return None
        self.refused += 1
        least = max(RETRY_S[name] for name in self.reached)
        # Random, or all clients would come back in the same second.
        return Overloaded(f"nothing was taken: {self.reason}", retry_after_s=least + self._source.randrange(least + 1))

    def stats(self) -> Mapping[str, object]:
        marks = {
            mark.name: {"value": round(mark.value, 3), "limit": mark.limit, "reached": mark.reached}
            for mark in self._marks.values()
        }
        return {**marks, "refused": self.refused}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(len(self._stores)):
                nursery.start_soon(self._ask, number)
            task_status.started()
            while True:
                due_s = trio.current_time() + next_beat_s(STEP_S)
                await trio.sleep_until(due_s)
                self.update(trio.current_time() - due_s)

    def update(self, lag_s: float) -> None:
        """Update the watermarks. `lag_s`: how many seconds late this call is, which measures the event loop's lag."""
        self._lags.append(max(0.0, lag_s))
        config = self.config
        limits = {
            "waiting_jobs": (sum(self._waiting), config.waiting_jobs_max),
            "journal_bytes": (self._behind(), config.journal_bytes_max),
            "lag_s": (min(self._lags) if len(self._lags) == LAGS else 0.0, config.lag_s_max),
        }
        for name, (value, limit) in limits.items():
            mark = self._marks[name]
            if mark.note(value, limit, config.release):
                if mark.reached:
                    self._log.warning("backpressure.reached", what=name, value=value, limit=limit)
                else:
                    self._log.info("backpressure.over", what=name, value=value, limit=limit, refused=self.refused)
        self.reached = [mark.name for mark in self._marks.values() if mark.reached]

    async def _ask(self, number: int) -> None:
        while True:
            try:
                stats = await self._stores[number].stats()
                self._waiting[number] = stats.waiting + stats.scheduled
            except (StoreAway, StoreRefused) as error:
                # Other loops report it; its last answer counts until it is back.
                self._log.debug("backpressure.store_away", partition=number, error=str(error))
            await rest(LOOK_S)

    def _describe(self, mark: Watermark) -> str:
        below = f"until it is below {self.config.release:.0%} of that"
        match mark.name:
            case "waiting_jobs":
                what = f"{mark.value:.0f} jobs wait (pressure.waiting_jobs_max = {mark.limit:.0f})"
            case "journal_bytes":
                what = f"{mark.value:.0f} bytes of the journal are not in the store yet"
                what += f" (pressure.journal_bytes_max = {mark.limit:.0f})"
            case _:
                what = f"this daemon is {mark.value:.1f} s behind its work (pressure.lag_s_max = {mark.limit:g})"
        return f"{what}; pushes are refused {below}"
