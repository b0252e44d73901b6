"""Store → workers: chooses what to claim over all partitions of the store, the best priority first.

A *look* queries which jobtypes wait in a partition: its *rows*. Each call to a partition is a task (`claims.py`).

    every partition   idle ──look──▶ rows known ──chosen──▶ claim ──▶ choose again (`rows.py`), or look
    in each round     claim the best row that some worker can run, and rows of equal rank in other partitions; worse
                      rows wait. Then look at each partition that was not looked at for a while, or got a hint

A slow partition is waited for a moment; after TROUBLE_S the others go on without its rows (docs/adr/0009). Rounds begin
on a hint (jobs ingested here, a slot freed) and by time: jobs also come from other daemons and fall due. Looks and
claims ask only for jobs that some worker with room takes, so jobs that no worker can run do not hide others.
"""

from collections.abc import Sequence

import trio

from jqd.domain.clock import Clock
from jqd.loops.claims import UNWANTED_S, Claims
from jqd.loops.poison import PoisonGuard
from jqd.scheduler import Scheduler
from jqd.store import Suspects

RECENT_S = 0.1  # rows up to this age are chosen from while a look is under way
MOMENT_S = 0.05  # how long a running look is waited for when the rows are older than RECENT_S
STANDING_S = 0.1  # between rounds while a partition may not claim, or a call to it is under way
TROUBLE_S = 0.5  # a partition whose call takes longer is not waited for


class Dispatch:
    def __init__(self, claims: Sequence[Claims], scheduler: Scheduler, clock: Clock, alone: PoisonGuard) -> None:
        self._claims, self._scheduler, self._clock, self._alone = claims, scheduler, clock, alone
        self.rounds = 0
        """Number of rounds begun. The watchdog sees by it whether this loop hangs."""
        self._hint = trio.Event()
        for each in claims:
            each.changed = self._wake

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._note_free)
            task_status.started()
            while True:
                self.rounds += 1
                self._hint = trio.Event()
                wait_s = self._round(nursery)
                with trio.move_on_after(wait_s):
                    await self._hint.wait()

    def _wake(self) -> None:
        self._hint.set()

    async def _note_free(self) -> None:
        """Report each free slot to the claims of all partitions, because they share the workers. Never returns."""
        while True:
            await self._claims[0].runner.wait_free()
            for each in self._claims:
                each.note_free_slot()

    def _round(self, nursery: trio.Nursery) -> float:
        """Start the calls to the store that are due. Returns for how many seconds at most to wait for a hint."""
        now_s = self._clock.mono_s()
        awaited_s = [
            each.since_s + MOMENT_S - now_s
            for each in self._claims
            if each.since_s is not None and not each.is_claiming and now_s - each.looked_at_s > RECENT_S
        ]
        wait_s = max(awaited_s, default=0.0)
        if wait_s <= 0:
            wait_s = UNWANTED_S
            self._choose(nursery, now_s)
            for each in self._claims:
                each.is_fresh = False
        for each in self._claims:
            if each.since_s is None and each.may_claim:
                due_s = min(each.due_s(now_s), each.runner.linger_s())
                if each.is_stale or due_s <= 0:
                    each.start_look(nursery)
                else:
                    wait_s = min(wait_s, due_s)
            elif each.since_s is None and each.must_compare:
                each.start_look(nursery)
            elif each.runner.is_served:
                wait_s = min(wait_s, STANDING_S)
        return wait_s

    def _choose(self, nursery: trio.Nursery, now_s: float) -> None:
        """Claim the best rows in partitions without a running call. A partition whose rows are outdated is queried
        first."""
        rows = [
            each.rows
            for each in self._claims
            if each.may_claim and (each.since_s is None or now_s - each.since_s <= TROUBLE_S)
        ]
        awaited: int | None = None  # the best rank that a running, recent call may bring
        selections = self._scheduler.select_rows_to_run(rows, may_run=lambda row: row.claims.may_run(row))
        for place, (row, no_worse_than) in enumerate(selections):
            claims = row.claims
            if awaited is not None and row.rank > awaited:
                return  # wait for that call: a worker runs jobs in the order it gets them
            if claims.since_s is None and claims.is_fresh:
                working = any(each.is_working for each in self._claims)
                policy = self._alone.judge(suspect=row.suspect, empty=self._is_idle(), working=working)
                if policy is None:
                    return
                if place == 0:
                    self._scheduler.chosen(row)
                taken = self._alone.taken if policy is Suspects.ALONE else None
                claims.start_claim(nursery, row, no_worse_than, policy, taken)
            else:
                if claims.since_s is None:
                    claims.start_look(nursery)
                if row.suspect and self._alone.is_waiting:
                    return  # nothing else is claimed: this daemon is being emptied for the suspect
            if awaited is None and claims.since_s is not None and now_s - claims.since_s <= MOMENT_S:
                awaited = row.rank
            if all(each.since_s is not None for each in self._claims):
                return

    def _is_idle(self) -> bool:
        return all(each.is_idle for each in self._claims)
