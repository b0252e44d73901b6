"""Fires schedules, each date once, at every daemon and without a leader. Sleeps until the next date.

Any daemon may fire any date. They take turns in an order made of the schedule's name: each waits a second longer than
the one before, and finds the date fired if that one is well. No daemon needs to know which others are well.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial

import trio

from jqd.cron.decide import Firing, decide
from jqd.cron.firing import fire, last_of
from jqd.cron.schedules import KnownSchedule, Schedules
from jqd.domain.array_split import in_steps
from jqd.domain.errors import JournalRefused, ServiceError, StoreAway, StoreRefused
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.tenant import bare
from jqd.loops.settings import SettingsSync
from jqd.service.services import Services

AT_ONCE = 100  # schedules fired in one call: a few ms of the store, one sync
TURN_S = 1.0  # between the turns of two daemons: longer than one takes to learn what the other fired
PLACES_MAX = 5  # of ten daemons the last wait no longer
LOOK_S = 0.25  # between rounds while a date is due that this daemon may not fire yet
AGAIN_S = 1.0  # until a schedule that could not be fired is tried again
SLEEP_S = 10.0  # longest sleep: so soon a clock that was set forward is noticed
CURRENT_S = 5.0  # settings of other daemons must be no older: ten polls of the store

WEATHER = (StoreAway, StoreRefused, JournalRefused, ServiceError)  # the last: it shuts down, or was too slow


class CronLoop:
    def __init__(
        self, services: Services, *, follows: Sequence[SettingsSync], place: Callable[[], tuple[int, int]]
    ) -> None:
        """`place`: which of the living daemons this one is, and how many they are."""
        self._services, self._clock = services, services.clock
        self._schedules = services.feature(Schedules)
        self._follows = follows
        self._place = place
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
        """Fire what is due and this daemon's turn. A partition that fails holds up no other."""
        by_home: dict[int, list[Firing]] = {}
        away: dict[int, str] = {}  # a server that hangs costs its timeout once a round
        # New ones first, then the longest waiting: many schedules that wait hold up no others.
        ours = sorted(filter(self._is_ours_now, self._schedules.due()), key=lambda one: one.again_at_s)
        for one in ours[:AT_ONCE]:
            home = partition_of_name(one.fired.job_id, self._services.partitions)
            if home in away:
                self._put_off(one, away[home])
                continue
            try:
                step = decide(one, await last_of(self._services, one, self._steady_s(home)), self._schedules.now_ms())
            except WEATHER as error:
                away[home] = str(error)
                self._put_off(one, str(error))
                continue
            if step is None:
                self._put_off(one, f"its last job, {bare(one.fired.job_id)}, has not ended")
            else:
                firing = Firing(one, step)
                by_home.setdefault(partition_of_name(firing.job_id, self._services.partitions), []).append(firing)
        for home, firings in by_home.items():
            try:
                waits = await fire(self._services, firings, partial(self._is_current, home))
            except WEATHER as error:
                waits = {firing.one.name: str(error) for firing in firings}
            for one in (firing.one for firing in firings if firing.one.name in waits):
                self._put_off(one, waits[one.name])

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

    def _put_off(self, one: KnownSchedule, why: str) -> None:
        """Try a schedule again a little later; the API shows why."""
        if why != one.trouble:
            self._log.info("schedules.waits", name=one.name, why=why)
        one.trouble = why
        one.again_at_s = self._clock.mono_s() + AGAIN_S
