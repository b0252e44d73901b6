"""Takes stopped jobs from the runner: outcomes go to the journal, untried jobs back to the store.

An outcome is acknowledged to the worker as a push is to its client: it goes to the journal first, and the `outcomes`
lane of `ingest` applies it. An untried job goes straight back with `release_jobs`, and no attempt is counted. So does
an interrupted job while the journal refuses writes. Jobs stay in flight until the store knows their end. While the
journal takes no outcomes no job is claimed. After a minute `recovery` leaves the jobs in flight to other daemons
(docs/adr/0006)."""

import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice, takewhile
from typing import TypeVar

import trio

from jqd.domain.errors import JournalRefused, StaleOwner
from jqd.domain.job import INTERRUPTED, Held, Outcome
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, encode_outcomes
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.runner import Runner
from jqd.scheduler import Scheduler
from jqd.store import Release, Store

OUTCOMES = 2_000  # in one frame: some 200 KiB, one sync
T = TypeVar("T")

REFUSED_WAIT_S = 0.5  # until outcomes that the journal refused are offered again


class OutcomesLoop:
    """Takes each stopped job from the runner once, and keeps it until its outcome is written or the job given back."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        runner: Runner,
        scheduler: Scheduler,
        membership: Membership,
        publish_view: Callable[[], Awaitable[None]],
        source: random.Random,
    ) -> None:
        """`publish_view`: saves in the store which workers are backed off, if that changed."""
        self.backoff = LoopBackoff("outcomes", source=source)
        self._journal, self._store, self._runner, self._scheduler = journal, store, runner, scheduler
        self._membership, self._publish_view = membership, publish_view
        self._returned: deque[tuple[Release, tuple[str, int]]] = deque()
        self._undelivered: deque[tuple[Release, tuple[str, int]]] = deque()
        self._back = trio.Event()
        self._unwritten = 0
        self._refused: str | None = None
        self._was_refused = False  # whether the journal refused the last write of outcomes
        self.since_s = math.inf
        """When the running write of outcomes began, by trio's clock; infinite: none is running."""
        self._begun = trio.Event()  # set while outcomes are being written
        self.on_probation: str | None = None
        """Why no job may be started although the journal takes outcomes; set by `recovery`."""
        self._log = get_logger("outcomes")

    @property
    def reason(self) -> str | None:
        """Why no job may be started: the journal takes no outcomes, or did not until lately. None: jobs may start."""
        if (why := self._journal.refusing or self._refused) is not None:
            return f"the journal takes no outcomes, so no job is started: {why}"
        return self.on_probation

    @property
    def pending(self) -> int:
        """Number of jobs taken from the runner whose end is not yet in the journal or the store."""
        return self._unwritten + len(self._returned) + len(self._undelivered)

    @property
    def unwritten(self) -> int:
        """Number of jobs taken from the runner whose outcome is not yet in the journal: a crash now would lose it."""
        return self._unwritten

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write outcomes to the journal until cancelled. A refused write is tried again; the jobs stay in flight
        meanwhile."""
        task_status.started()
        while True:
            await self._runner.wait_stopped()
            if outcomes := self._take():
                self._unwritten, self.since_s = len(outcomes), trio.current_time()
                self._begun.set()
                await self._write(outcomes)
                self._unwritten, self.since_s, self._begun = 0, math.inf, trio.Event()

    async def wait_stuck(self, for_s: float) -> None:
        """Wait until one write of outcomes has lasted for `for_s` seconds, because it is refused or hangs."""
        while (left_s := self.since_s + for_s - trio.current_time()) > 0:
            if self._begun.is_set():
                await trio.sleep(left_s)
            else:
                await self._begun.wait()

    async def run_returns(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Give jobs that stopped without an outcome back to the store, until cancelled."""
        task_status.started()
        while True:
            await self._back.wait()
            self._back = trio.Event()
            while self._returned or self._undelivered:
                await self.backoff.attempt(self._release if self._returned else self._release_undelivered)

    def _take(self) -> Sequence[Outcome]:
        """Take stopped jobs from the runner. Returns outcomes to journal; `run_returns` gives the jobs without one
        back."""
        stopped = self._runner.get_stopped_jobs(OUTCOMES)
        jobtypes = [outcome.jobtype for outcome in stopped.outcomes] + [held.job.jobtype for held in stopped.returned]
        for jobtype, count in Counter(jobtypes).items():
            self._scheduler.jobs_stopped(jobtype, count)
        unsent, sent = set(map(_claim, stopped.unsent)), set(stopped.maybe_delivered)
        returned = map(_claim, stopped.returned)
        self._returned += ((Release.UNSENT if claim in unsent else Release.UNGET, claim) for claim in returned)
        self._undelivered += (
            (Release.UNGET if claim in sent else Release.UNSENT, claim) for claim in stopped.undelivered
        )
        if self._returned or self._undelivered:
            self._back.set()
        return stopped.outcomes

    async def _write(self, outcomes: Sequence[Outcome]) -> None:
        while outcomes:
            try:
                position = self._journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
                await self._journal.wsync(position)
            except JournalRefused as error:
                note = self._log.debug if self._was_refused else self._log.error
                self._refused, self._was_refused = str(error), True
                note("outcomes.refused", count=len(outcomes), error=self._refused)
                outcomes = self._hand_back(outcomes, error)
                await trio.sleep(REFUSED_WAIT_S)
            else:
                self._log.debug("outcomes.batch", count=len(outcomes))
                if self._was_refused:
                    self._log.info("outcomes.goes_on")
                self._was_refused = False
                break
        self._refused = None
        self._runner.mark_durable()

    def _hand_back(self, outcomes: Sequence[Outcome], error: JournalRefused) -> Sequence[Outcome]:
        """Give interrupted jobs back to the store, as the journal refused their outcomes. Returns the other
        outcomes."""
        self._runner.refused(error)
        interrupted = [(outcome.job_id, outcome.fence) for outcome in outcomes if outcome.reason == INTERRUPTED]
        self._returned += ((Release.UNGET, claim) for claim in interrupted)
        self._unwritten = len(outcomes) - len(interrupted)
        untaken = self._take()
        assert not untaken, f"{len(untaken)} outcomes were given while the journal refused others"
        return [outcome for outcome in outcomes if outcome.reason != INTERRUPTED]

    async def _release(self) -> None:
        left = len(self._returned)
        if self._membership.owner is not None:
            await self._publish_view()  # else another daemon would send them to the worker that refused them
        while left:
            left -= await self._release_alike(left)

    async def _release_alike(self, most: int) -> int:
        how, batch = _alike([*islice(self._returned, min(most, OUTCOMES))])
        owner = self._membership.owner
        if owner is not None:
            try:
                await self._store.release_jobs(owner, dict(batch), how)
            except StaleOwner as error:
                # Our epoch was taken away, which made these jobs ready.
                self._log.warning("outcomes.stale_release", count=len(batch), error=str(error))
        self._runner.forget(batch)
        for _ in batch:
            self._returned.popleft()
        self._log.info("outcomes.returned", count=len(batch))
        return len(batch)

    async def _release_undelivered(self) -> None:
        """Give jobs back to the store that may not have reached their pull worker, before a worker timeout counts an
        attempt."""
        how, batch = _alike(self._undelivered)
        released = await self._store.release_entrusted(batch, how)
        for _ in batch:
            self._undelivered.popleft()
        self._log.info("outcomes.undelivered", count=len(released))


def _alike(queue: Sequence[tuple[Release, T]]) -> tuple[Release, list[T]]:
    """Return how the first claim in a queue of (how to release, claim) pairs is released, and that claim with those
    right behind it that are released in the same way: at most OUTCOMES claims, for one call."""
    how, _ = next(iter(queue))
    return how, [claim for _, claim in islice(takewhile(lambda pair: pair[0] is how, queue), OUTCOMES)]


def _claim(held: Held) -> tuple[str, int]:
    return held.job.id, held.fence
