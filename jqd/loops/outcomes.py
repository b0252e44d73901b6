"""What stopped in the runner → journal (outcomes) or store (jobs handed back untried).

An outcome is a promise to a worker as a push is one to a pusher: it goes to the journal first, and the `outcomes`
lane of `ingest` applies it from there. A job handed back promises nothing; it goes straight to `release_jobs`. Nor does
an interruption: while the journal refuses, that is a return that nobody counts.
Jobs stay in hand until the store knows what became of them.
"""

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

import trio

from jqd.domain.errors import JournalRefused, StaleOwner, StoreAway, StoreRefused
from jqd.domain.job import INTERRUPTED, Held, Outcome
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, encode_outcomes
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.runner import Runner, Stopped
from jqd.scheduler import Scheduler
from jqd.store import Release, Store

OUTCOMES = 2_000  # in one frame: some 200 KiB, one sync
T = TypeVar("T")

REFUSED_WAIT_S = 0.5  # a full disk is weather: the same outcomes are offered again this often


class OutcomesLoop:
    """Takes each stopped job once, and keeps it until its end is written or it is handed back."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        runner: Runner,
        scheduler: Scheduler,
        membership: Membership,
        say_view: Callable[[], Awaitable[None]],
        source: random.Random,
    ) -> None:
        """`say_view`: tells the store which workers get nothing for now, if it has not heard it."""
        self.backoff = LoopBackoff("outcomes", source=source)
        self._journal = journal
        self._store = store
        self._runner = runner
        self._scheduler = scheduler
        self._membership = membership
        self._say_view = say_view
        self._returned: deque[tuple[Release, tuple[str, int]]] = deque()
        self._unheard: deque[tuple[Release, tuple[str, int]]] = deque()
        self._back = trio.Event()
        self._unwritten = 0
        self._log = get_logger("outcomes")

    @property
    def pending(self) -> int:
        """Jobs taken from the runner whose end is not yet in the journal or the store."""
        return self._unwritten + len(self._returned) + len(self._unheard)

    @property
    def unwritten(self) -> int:
        """Jobs taken from the runner whose end is not yet in the journal: if the process ends now, it is lost."""
        return self._unwritten

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write outcomes until cancelled. A journal that refuses is asked again: the jobs stay in hand meanwhile."""
        task_status.started()
        while True:
            await self._runner.wait_stopped()
            if outcomes := self._take():
                self._unwritten = len(outcomes)
                await self._write(outcomes)
                self._unwritten = 0

    async def run_returns(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hand jobs back to the store until cancelled."""
        task_status.started()
        while True:
            await self._back.wait()
            self._back = trio.Event()
            while self._returned or self._unheard:
                try:
                    if self._returned:
                        await self._release()
                    else:
                        await self._release_unheard()
                except (StoreAway, StoreRefused) as error:
                    await self.backoff.wait_after_failure(error)
                else:
                    self.backoff.succeeded()

    def _take(self) -> Sequence[Outcome]:
        """What stopped: outcomes to be written. All else goes to `run_returns`."""
        stopped = self._runner.get_stopped_jobs(OUTCOMES)
        for jobtype, count in Counter(_jobtypes(stopped)).items():
            self._scheduler.jobs_stopped(jobtype, count)
        unsent, told = set(map(_claim, stopped.unsent)), set(stopped.told)
        returned = map(_claim, stopped.returned)
        self._returned += ((Release.UNSENT if claim in unsent else Release.UNGET, claim) for claim in returned)
        self._unheard += ((Release.UNGET if claim in told else Release.UNSENT, claim) for claim in stopped.unheard)
        if self._returned or self._unheard:
            self._back.set()
        return stopped.outcomes

    async def _write(self, outcomes: Sequence[Outcome]) -> None:
        while outcomes:
            try:
                position = self._journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
                await self._journal.wsync(position)
            except JournalRefused as error:
                self._log.error("outcomes.refused", count=len(outcomes), error=str(error))
                outcomes = self._hand_back(outcomes, error)
                await trio.sleep(REFUSED_WAIT_S)
            else:
                self._log.info("outcomes.batch", count=len(outcomes))
                break
        self._runner.mark_durable()

    def _hand_back(self, outcomes: Sequence[Outcome], error: JournalRefused) -> Sequence[Outcome]:
        """Return what promises nobody anything, these or what stopped since. Gives those that wait for the disk."""
        self._runner.refused(error)
        cut = [(one.job_id, one.fence) for one in outcomes if one.reason == INTERRUPTED]
        self._returned += ((Release.UNGET, claim) for claim in cut)
        self._unwritten = len(outcomes) - len(cut)
        untaken = self._take()
        assert not untaken, f"{len(untaken)} outcomes were given while the journal refused others"
        return [one for one in outcomes if one.reason != INTERRUPTED]

    async def _release(self) -> None:
        said = len(self._returned)
        if self._membership.owner is not None:
            await self._say_view()  # or another daemon would send them where they were refused
        while said:
            said -= await self._release_alike(said)

    async def _release_alike(self, most: int) -> int:
        how, batch = _alike([*islice(self._returned, min(most, OUTCOMES))])
        owner = self._membership.owner
        if owner is not None:
            try:
                await self._store.release_jobs(owner, dict(batch), how)
            except StaleOwner as error:
                # Our epoch was burnt, and these jobs were made ready with that.
                self._log.warning("outcomes.stale_release", count=len(batch), error=str(error))
        self._runner.forget(batch)
        for _ in batch:
            self._returned.popleft()
        self._log.info("outcomes.returned", count=len(batch))
        return len(batch)

    async def _release_unheard(self) -> None:
        """Give back what is in the hands of workers that do not know it. Else silence would, and cost an attempt."""
        how, batch = _alike(self._unheard)
        released = await self._store.release_entrusted(batch, how)
        for _ in batch:
            self._unheard.popleft()
        self._log.info("outcomes.undelivered", count=len(released))


def _alike(queue: Sequence[tuple[Release, T]]) -> tuple[Release, list[T]]:
    """What goes back in one call: those at the head of a queue, which is not empty, that go back in one way."""
    how, _ = next(iter(queue))
    return how, [one for _, one in islice(takewhile(lambda one: one[0] is how, queue), OUTCOMES)]


def _claim(held: Held) -> tuple[str, int]:
    return held.job.id, held.fence


def _jobtypes(stopped: Stopped) -> Iterator[str]:
    yield from (outcome.jobtype for outcome in stopped.outcomes)
    yield from (held.job.jobtype for held in stopped.returned)
