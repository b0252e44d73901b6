"""Counts jobs per minute, from samples of the store's totals that each daemon takes every SAMPLE_S.

samples     a ────────── b ── … ── now        a: the last one that is at least a minute old, b: the next one
                 ▲ a minute ago: the totals of this instant are interpolated between a and b
"""

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

import trio
from msgspec import Meta, Struct, structs

from jqd.domain.beat import rest
from jqd.domain.clock import Clock
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.settings import SettingTable
from jqd.service.services import Services
from jqd.store import StoreStats, Totals, TypeView

SAMPLE_S = 20.0  # between two samples: four are kept, some 10 MB for 10,000 jobtypes
WINDOW_S = 60.0
ALL = None  # stands for all jobtypes together


class PerMinute(Struct, frozen=True):
    """Counts of the last minute, over all daemons; of a shorter time if this daemon has no sample that old."""

    pushed: float = 0
    started: Annotated[float, Meta(description="attempts")] = 0
    ended: Annotated[float, Meta(description="jobs, however they ended")] = 0
    failed: Annotated[float, Meta(description="of those that ended")] = 0


class Rates:
    """This daemon's samples of the store's totals, and the rates made from them. All rates are 0 before the first
    sample, and after the store lost data."""

    def __init__(self, _settings: SettingTable, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str | None, Totals]]] = deque()

    def note(self, stats: StoreStats, views: list[TypeView]) -> None:
        now_s = self._clock.mono_s()
        self._samples.append((now_s, {ALL: stats.totals, **{view.jobtype: view.totals for view in views}}))
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def of(self, view: TypeView) -> PerMinute:
        return self._since_then(view.jobtype, view.totals)

    def of_all(self, stats: StoreStats) -> PerMinute:
        """Return the rates of all jobtypes together; zeros if a partition did not answer, so that its totals are
        missing."""
        return PerMinute() if stats.unreachable else self._since_then(ALL, stats.totals)

    def _since_then(self, name: str | None, totals: Totals) -> PerMinute:
        then_s = self._clock.mono_s() - WINDOW_S
        known = [(at_s, sample.get(name, Totals())) for at_s, sample in self._samples]
        if not known:
            return PerMinute()
        known.append((then_s + WINDOW_S, totals))
        after = next(place for place, (at_s, _) in enumerate(known) if at_s > then_s)
        late_s, late = known[after]
        early_s, early = known[max(0, after - 1)]
        part = (then_s - early_s) / (late_s - early_s) if after else 1.0
        begun = (old + (new - old) * part for old, new in zip(early, late, strict=True))
        return PerMinute(*(round(max(0.0, now - then), 3) for now, then in zip(totals, begun, strict=True)))


async def sample(services: Services, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Take samples until cancelled, but none while the store or one of its partitions is away."""
    rates, log = services.feature(Rates), get_logger("rates")
    task_status.started()
    while True:
        try:
            stats, views = await services.store.stats(), await services.store.list_types(dated=False)
        except (StoreAway, StoreRefused) as error:
            log.debug("rates.store_away", error=str(error))
        else:
            if not stats.unreachable:
                rates.note(stats, views)
        await rest(SAMPLE_S)


def shown(services: Services, stats: StoreStats) -> dict[str, Any]:
    """Return the store's numbers in the form that `GET /v1/stats` shows."""
    rates = services.feature(Rates).of_all(stats)
    lately = {f"{name}_a_minute": rate for name, rate in structs.asdict(rates).items()}
    return {**stats._asdict(), "counts": stats.counts._asdict() | lately, "totals": stats.totals._asdict()}
