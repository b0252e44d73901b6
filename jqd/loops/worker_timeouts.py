"""Ends the attempts of jobs whose worker holds them by itself (a 202 or a pull) and has given no sign of life too long.

    look ──▶ the present number in the store's sequence of signs of life, noted with the time here: a mark
      │      for each timeout that leases have ──▶ the number in the mark that is as old as the timeout
      └────▶ leases with a lower number have timed out: one daemon gets each, and journals its jobs' outcomes

Only this daemon's clock judges a worker, and the cost of a look does not grow with the number of leases. If the daemon
that got a lease dies before it wrote the outcomes, another daemon gets the lease after `lease_s`. Where no mark is old
enough, because this daemon just started or the store changed, the timeouts of workers begin anew."""

import random
from collections.abc import Iterator

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.beat import rest
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused, StoreAway, StoreChanged, StoreRefused
from jqd.domain.job import Outcome
from jqd.domain.lease import Marks
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, encode_outcomes
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.runner import Report, end_attempt
from jqd.runner.departures import Departures
from jqd.store import Lease, Store

NONE_S = 1.0  # between looks while no lease has a timeout, and there is no other daemon
LOOK_S = 0.5  # between looks: a timeout is noticed so late, and measured too long by as much
LOOK_JOBS = 500  # ended in one look: a function must stay below about 5 ms
NO_HEARTBEAT = "NO_HEARTBEAT"  # begins the message of an attempt whose worker timed out


class WorkerTimeouts:
    """Finds leases in one partition of the store whose workers timed out, and ends their attempts."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        membership: Membership,
        clock: Clock,
        source: random.Random,
        backoff: Backoff,
        departures: Departures,
    ) -> None:
        self.backoff = LoopBackoff("worker_timeouts", source=source)
        self._journal, self._store, self._membership = journal, store, membership
        self._clock, self._source, self._backoff = clock, source, backoff
        self._departures = departures
        self._marks = Marks(NONE_S + LOOK_S)
        self._silences_s: tuple[int, ...] = ()
        self._life: str | None = None
        self._log = get_logger("worker_timeouts")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            try:
                while self._membership.settled and await self._look():
                    pass
            except StoreChanged as error:
                self._marks.forget()
                await self.backoff.wait_after_failure(error)
            except (StoreAway, StoreRefused, JournalRefused) as error:
                await self.backoff.wait_after_failure(error)  # the store returns the leases again after a while
            await rest(NONE_S if self._membership.is_alone and not self._silences_s else LOOK_S)

    async def _look(self) -> bool:
        """End the attempts of leases that timed out. Returns whether there may be more."""
        life, now_s = self._membership.life, self._clock.mono_s()
        if life != self._life:
            self._life = life
            self._marks.forget()
        found = await self._store.find_silent(dict(self._old_marks(now_s)), LOOK_JOBS)
        self.backoff.succeeded()
        self._marks.note(found.now, self._clock.mono_s())
        self._silences_s = found.silences_s
        if found.given_back:
            self._log.warning("worker_timeouts.released", count=found.given_back)
        outcomes = [outcome for lease in found.leases for outcome in self._end(lease)]
        if outcomes:
            position = self._journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
            await self._journal.wsync(position)
        return found.given_back + sum(len(lease.jobs) for lease in found.leases) >= LOOK_JOBS

    def _old_marks(self, now_s: float) -> Iterator[tuple[int, int]]:
        for silence_s in self._silences_s:
            mark = self._marks.find(silence_s or self._membership.config.lease_s, now_s)
            if mark is not None:
                yield silence_s, mark

    def _end(self, lease: Lease) -> Iterator[Outcome]:
        self._log.warning(
            "worker_timeouts.found", worker=lease.worker, silence_s=lease.silence_s, count=len(lease.jobs)
        )
        self._departures.lost("worker", lease.worker, len(lease.jobs))
        silent = f"for {lease.silence_s} s" if lease.silence_s else "for too long"
        report = Report(
            status=504,
            reason="timeout",
            retry_after_s=0.0,
            message=f"{NO_HEARTBEAT}: nothing was heard {silent} of the worker that held this job",
        )
        for held in lease.jobs:
            yield end_attempt(
                held,
                report,
                backoff=self._backoff,
                source=self._source,
                worker=lease.worker,
                started_at_ms=lease.fence // 1000,
                finished_at_ms=self._clock.wall_ms(),
                result_bytes_max=0,
            )
