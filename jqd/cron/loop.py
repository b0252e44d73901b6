"""The loop that fires schedules. It runs at every daemon, without a leader, and sleeps until the next date.

Any daemon may fire any date. For each schedule the daemons have an order, which depends on its name. The first daemon
fires at once; each further one waits a second longer, and does nothing if it finds the date fired. So no daemon needs
to know which of the others are alive.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice, zip_longest

import trio

from jqd.cron.decide import Firing, decide
from jqd.cron.firing import fire, last_runs
from jqd.cron.schedules import KnownSchedule, Schedules
from jqd.domain.array_split import in_steps
from jqd.domain.errors import JournalRefused, ServiceError, StoreAway, StoreRefused
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.tenant import bare, tenant_of
from jqd.loops.settings import SettingsSync
from jqd.service.services import Services

AT_ONCE = 100  # the most schedules in one round: those of a tenant take a few ms of the store, and one sync
TURN_S = 1.0  # how much longer each daemon waits than the one before it: time enough to learn what that one fired
PLACES_MAX = 5  # no daemon waits more than this many TURN_S, however many daemons there are
LOOK_S = 0.25  # between rounds while a date has come that this daemon may not fire yet
AGAIN_S = 1.0  # when a schedule that could not be fired is tried again
SLEEP_S = 10.0  # the longest sleep, so that a clock that was set forward is noticed
CURRENT_S = (
    5.0  # what other daemons fired must have been read no longer ago: the store is polled ten times in that time
)

# Errors that pass: the loop tries again. A ServiceError is raised when the daemon shuts down, or was too slow.
WEATHER = (StoreAway, StoreRefused, JournalRefused, ServiceError)


class CronLoop:
    def __init__(
        self, services: Services, *, follows: Sequence[SettingsSync], place: Callable[[], tuple[int, int]]
    ) -> None:
        """`place` returns this daemon's number among the living daemons, and how many daemons live.

        `follows`: for each partition the loop that reads the settings of other daemons.
        """
        self._services, self._clock = services, services.clock
        self._schedules = services.feature(Schedules)
        self._follows = follows
        self._place = place
        self._served = ""  # the tenant of the last schedule of the round before
        self._log = get_logger("schedules")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            changed = self._schedules.changed
            await in_steps(self._schedules.looks(), trio.lowlevel.checkpoint)
            next_ms = self._schedules.next_ms()
            if next_ms is None:
                await changed.wait()
                continue
            left_s = (next_ms - self._schedules.now_ms()) / 1000
            if left_s <= 0:
                await self._look()
                left_s = LOOK_S
            with trio.move_on_after(min(left_s, SLEEP_S)):
                await changed.wait()

    async def _look(self) -> None:
        """Fire the dates that have come, of the schedules for which it is this daemon's turn now. A partition of the
        store that fails does not delay the others."""
        by_home: dict[int, list[Firing]] = {}
        away: dict[int, str] = {}  # partition → why it failed: so a hanging server costs one timeout in each call
        for one in in_turns(filter(self._is_ours_now, self._schedules.due()), self._served):
            self._served = tenant_of(one.name)
            home = partition_of_name(one.fired.job_id, self._services.partitions)
            if home in away:
                self._retry_later(one, away[home])
                continue
            try:
                runs = await last_runs(self._services, one, self._steady_s(home))
                step = decide(one, runs, self._schedules.now_ms())
            except WEATHER as error:
                away[home] = str(error)
                self._retry_later(one, str(error))
                continue
            if step is None or step.is_note:
                self._retry_later(one, f"its last job, {bare(one.fired.job_id)}, has not ended")
            if step is not None:
                firing = Firing(one, step)
                by_home.setdefault(partition_of_name(firing.job_id, self._services.partitions), []).append(firing)
        for home, firings in by_home.items():
            try:
                waits = await fire(self._services, firings, partial(self._is_current, home))
            except WEATHER as error:
                waits = {firing.one.name: str(error) for firing in firings}
            for one in (firing.one for firing in firings if firing.one.name in waits):
                self._retry_later(one, waits[one.name])

    def _is_ours_now(self, one: KnownSchedule) -> bool:
        if one.next_ms is None or one.again_at_s > self._clock.mono_s():
            return False
        number, daemons = self._place()
        turn = (number + zlib.crc32(one.name.encode())) % daemons
        return self._schedules.now_ms() >= one.next_ms + min(turn, PLACES_MAX) * TURN_S * 1000

    def _is_current(self, home: int, life: str) -> bool:
        follow = self._follows[home]
        synced_at_s = follow.synced_at_s
        return synced_at_s is not None and self._clock.boot_s() - synced_at_s <= CURRENT_S and life in ("", follow.life)

    def _steady_s(self, home: int) -> float:
        since_s = self._follows[home].steady_since_s
        return 0.0 if since_s is None else self._clock.boot_s() - since_s

    def _retry_later(self, one: KnownSchedule, why: str) -> None:
        """Let a schedule wait for AGAIN_S before it is tried again. `why`: the reason, which the API shows."""
        if why != one.trouble:
            self._log.info("schedules.waits", name=one.name, why=why)
        one.trouble = why
        one.again_at_s = self._clock.mono_s() + AGAIN_S


def in_turns(due: Iterable[KnownSchedule], served: str) -> list[KnownSchedule]:
    """Return AT_ONCE of the schedules, one of each tenant in turn, so that no tenant's dates wait for another's.

    `served`: the tenant after which the turn begins. Of a tenant, schedules that have not failed come first, then those
    that failed longest ago, so that all get a turn."""
    by_tenant: dict[str, list[KnownSchedule]] = {}
    for one in sorted(due, key=lambda one: one.again_at_s):
        by_tenant.setdefault(tenant_of(one.name), []).append(one)
    tenants = sorted(by_tenant, key=lambda tenant: (tenant <= served, tenant))
    turns = chain.from_iterable(zip_longest(*(by_tenant[tenant] for tenant in tenants)))
    return [*islice((one for one in turns if one is not None), AT_ONCE)]
