"""Builds every part, opens the long-lived nursery, walks the stages of start and shutdown.

    start     lock and recover the journal → open the store (it may be away) → listen → join → run the loops
    shutdown  refuse pushes → stop dispatching → drain the runner → settle → hand back the rest → leave → close

SIGTERM and kill -9 lead to the same recovery at the next start; SIGTERM only makes it quick and quiet.
"""

import dataclasses
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import trio

from jqd.api import Api, Parts
from jqd.clock import Clock, SystemClock
from jqd.config import Config
from jqd.control import Control
from jqd.edge import address_of, bind, serve_http, url_of
from jqd.errors import JournalForked, StoreError
from jqd.job import Fate, Job, Outcome
from jqd.joblog import JobLog
from jqd.journal import Journal, open_journal
from jqd.log import get_logger
from jqd.loops.barrier import Barrier
from jqd.loops.dispatch import Dispatch
from jqd.loops.endings import Endings
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.membership import Membership
from jqd.loops.purge import Purge
from jqd.loops.reap import Reap
from jqd.loops.renew import Renew
from jqd.loops.retention import Retention
from jqd.loops.settle import Settle
from jqd.loops.watch import Watch, watch_nothing, watch_over
from jqd.rates import Rates
from jqd.record import Lane, decode_cancels, decode_jobs, decode_outcomes, split_cancel
from jqd.runner import Runner, Workers
from jqd.scheduler import Scheduler
from jqd.store import Store, StoreConfig, open_embedded, open_store

SETTLE_S = 3.0  # of the drain time, kept for writing and applying the last outcomes
LEAVE_S = 2.0  # to hand jobs back and leave the store; whoever cannot is reaped after a lease instead
EXIT_GRACE_S = 3.0  # past the drain time the process ends, whatever a peer's socket is doing
FORK_RETRY_S = 1.0  # a store that fails while the journal gets a new id is looked at again
RECORD_BYTES = 160  # what a record costs beside its argument or result, for the size of a script call

log = get_logger("daemon")


class Daemon:
    """All parts of one daemon, built but not yet running."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        store: Store,
        clock: Clock,
        source: random.Random,
        watch: Watch | None = None,
    ) -> None:
        """`watch`: None for a store that has no server to look at."""
        self.config = config
        self.watch = watch or watch_nothing()
        self.journal = journal
        self.store = store
        self.clock = clock
        sysid = journal.journal_id[:10]
        self.endings = Endings()
        self.rates = Rates(clock)
        self.joblog = JobLog(Path(config.log.job_log) if config.log.job_log else None, daemon=sysid, clock=clock)
        # A store of our own in our data directory: no other daemon can hold jobs of it.
        self.membership = Membership(sysid, config.lease, clock, alone=not config.store.url)
        self.workers = Workers(config.data_dir / "workers.json", clock=clock)
        self.runner = Runner(
            config.runner,
            workers=self.workers,
            clock=clock,
            source=source,
            trusts=self.membership.trusts,
            backoff=config.retry,
            daemon=sysid,
        )
        self.scheduler = Scheduler()
        self._build_loops(source)
        self.control = self._build_control()
        self.api = Api(Parts(config.api, journal, store, self.runner, self.workers, self.control, clock))

    def _build_control(self) -> Control:
        return Control(
            journal=self.journal,
            store=self.store,
            runner=self.runner,
            workers=self.workers,
            membership=self.membership,
            renew=self.renew,
            rates=self.rates,
            lanes=self.lanes,
            watch=self.watch,
            paces=[
                *(self.barrier.pace, self.renew.pace, self.dispatch.pace),
                *(lane.pace for lane in self.lanes.values()),
            ],
            endings=self.endings,
            clock=self.clock,
            joblog=self.joblog,
        )

    def _build_loops(self, source: random.Random) -> None:
        journal, store, clock = self.journal, self.store, self.clock
        self.dispatch = Dispatch(
            store=store,
            scheduler=self.scheduler,
            runner=self.runner,
            membership=self.membership,
            clock=clock,
            source=source,
            started=self.joblog.started,
        )
        self.settle = Settle(
            journal=journal,
            store=store,
            runner=self.runner,
            scheduler=self.scheduler,
            membership=self.membership,
            source=source,
        )
        self.reap = Reap(store=store, membership=self.membership, clock=clock, source=source)
        self.renew = Renew(
            store=store,
            membership=self.membership,
            clock=clock,
            source=source,
            stop_work=self.runner.stop_work,
            cancelled=self.runner.cancel,
            seen=self.reap.seen,
        )
        self.lanes = self._build_lanes(source)
        self.barrier = Barrier(
            journal=journal,
            store=store,
            membership=self.membership,
            lanes=self.lanes,
            runner=self.runner,
            reap=self.reap,
            claims=self.dispatch.claims,
            source=source,
        )
        self.purge = Purge(store=store, source=source)
        self.retention = Retention(
            journal=journal,
            store=store,
            membership=self.membership,
            lanes=self.lanes,
            clock=clock,
            source=source,
            unsafe=lambda: self.watch.reason is not None,
        )

    def _build_lanes(self, source: random.Random) -> dict[Lane, Ingest[Any]]:
        rules: dict[Lane, LaneRules[Any]] = {
            Lane.JOBS: LaneRules(
                decode_jobs,
                self.watch.guard(self.store.apply_jobs),
                lambda job: len(job.argument) + RECORD_BYTES,
                self._ingested,
            ),
            Lane.OUTCOMES: LaneRules(
                decode_outcomes,
                self.store.apply_outcomes,
                lambda outcome: len(outcome.result) + len(outcome.error) + len(outcome.message) + RECORD_BYTES,
                self._ended,
            ),
            Lane.CANCELS: LaneRules(decode_cancels, self.store.apply_cancels, lambda _: RECORD_BYTES, self._cancelled),
        }
        return {
            lane: Ingest(
                lane,
                rule,
                journal=self.journal,
                store=self.store,
                source=source,
                rolled_back=lambda: self.barrier.rolled_back(),
            )
            for lane, rule in rules.items()
        }

    def _ingested(self, jobs: Sequence[Job]) -> None:
        self.dispatch.wake()
        if self.joblog.enabled:
            self.joblog.write("ingested", ({"job_id": job.id, "jobtype": job.jobtype} for job in jobs))

    def _ended(self, outcomes: Sequence[Outcome]) -> None:
        self.runner.settled((outcome.job_id, outcome.fence) for outcome in outcomes)
        self.endings.ring(outcome.job_id for outcome in outcomes)
        self.rates.note(outcome.jobtype for outcome in outcomes if outcome.fate is not Fate.RETRY)
        self.dispatch.wake()
        self.joblog.ended(outcomes)

    def _cancelled(self, records: Sequence[str]) -> None:
        job_ids = [split_cancel(record)[0] for record in records]
        if any(self.runner.at_work(job_id) for job_id in job_ids):
            self.membership.hurry()  # the renewal brings word of those whose present life is meant
        self.endings.ring(job_ids)
        if self.joblog.enabled:
            self.joblog.write("cancelled", ({"job_id": job_id} for job_id in job_ids))

    async def run(self, *, stop: trio.Event, listener: Any, ready: Callable[[str], None]) -> None:
        """Run until `stop` is set, then walk the stages of shutdown."""
        url = url_of(listener)
        http_closed = trio.Event()
        async with trio.open_nursery() as listening:
            async with trio.open_nursery() as working:
                for loop in self._loops():
                    await working.start(loop)
                async with trio.open_nursery() as dispatching:
                    await dispatching.start(self.dispatch.run)
                    await dispatching.start(self.dispatch.run_hints)
                    await listening.start(partial(serve_http, self.api, listener, stopped=http_closed.wait))
                    log.info("daemon.ready", url=url, sysid=self.membership.sysid, data_dir=str(self.config.data_dir))
                    ready(url)
                    await stop.wait()
                    self.control.draining = True
                    dispatching.cancel_scope.cancel()
                await self._shut_down()
                working.cancel_scope.cancel()
            http_closed.set()

    def _loops(self) -> list[Callable[..., Any]]:
        """All that runs until the last outcome is settled, in the order it is started."""
        return [
            self.runner.run,
            self.renew.run,
            self.renew.run_doubt,
            self.reap.run,
            self.settle.run,
            self.settle.run_returns,
            self.purge.run,
            self.retention.run,
            self.watch.run,
            self.barrier.run,
            *(lane.run for lane in self.lanes.values()),
        ]

    async def _shut_down(self) -> None:
        """Drain, settle, hand back, leave; each stage has its time, and none of them can lose a job."""
        log.info("daemon.draining", in_hand=len(self.runner.get_running_jobs()), drain_s=self.config.drain_s)
        with trio.move_on_after(max(0.0, self.config.drain_s - SETTLE_S - LEAVE_S)):
            await self.runner.drain()
        self.runner.stop_work()
        with trio.move_on_after(SETTLE_S):
            await self._settle_all()
        with trio.move_on_after(LEAVE_S):
            owner = self.membership.owner
            if owner is not None:
                try:
                    await self.store.release_sysid(owner)
                except StoreError as error:
                    log.warning("daemon.not_left", error=str(error))
        log.info("daemon.stopped", in_hand=len(self.runner.get_running_jobs()))

    async def _settle_all(self) -> None:
        """Until every outcome is in the journal and the store, and every untried job is handed back."""
        while self.runner.get_running_jobs() or self.settle.pending:  # noqa: ASYNC110 - three parts, one short moment
            await trio.sleep(0.02)
        await self.lanes[Lane.OUTCOMES].wait_caught_up(self.journal.end)


async def serve(config: Config, *, ready: Callable[[str], None] = lambda url: None) -> None:
    """Run one daemon until SIGTERM or SIGINT; a second signal, or the end of the drain time, ends it at once.

    `ready` is called with the URL once jobs are accepted. Raises ConfigError, JournalLocked, JournalVersion and
    StoreUnsafe before anything is accepted.
    """
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if config.store.url:
        await watch_over(config.store).start()
    listener = bind(config.http.bind)
    address = address_of(listener)
    journal_id: bytes | None = None
    told: list[str] = []

    def ready_once(url: str) -> None:
        if not told:  # a life may end before it was ready, and the next one is the first to say so
            told.append(url)
            ready(url)

    while True:
        with closing(listener):
            forked = await _serve_once(config, listener, ready_once, journal_id)
        if forked is None:
            return
        journal_id, listener = forked, bind(address)


async def _serve_once(
    config: Config, listener: Any, ready: Callable[[str], None], journal_id: bytes | None
) -> bytes | None:
    """One life of the daemon. Returns the journal id under which to begin another, or None when it was told to stop."""
    clock = SystemClock()
    source = random.Random()
    forked: bytes | None = None
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(config.journal, clock=clock, journal_id=journal_id))
        settings = await stack.enter_async_context(_store_settings(config))
        store = await stack.enter_async_context(open_store(settings))
        daemon = Daemon(config, journal, store, clock, source, watch_over(settings))
        stop = trio.Event()
        nursery = await stack.enter_async_context(trio.open_nursery())
        await nursery.start(_watch_signals, stop, config.drain_s)
        try:
            await daemon.run(stop=stop, listener=listener, ready=ready)
        except* JournalForked as group:
            log.error("daemon.journal_forked", error=str(group.exceptions[0]), journal=journal.journal_id)
            forked = await _fork(daemon)
        nursery.cancel_scope.cancel()
    return forked


async def _fork(daemon: Daemon) -> bytes:
    """A new id for this journal directory. What the old one had applied of it is marked as applied for the new one.

    A store that goes away meanwhile is no harm: the id stays as it is, and the next life finds the same.
    """
    journal, store = daemon.journal, daemon.store
    new = os.urandom(16)
    try:
        stored = await store.applied(journal.journal_id)
        await store.applied(new.hex())
        for lane, ingest in daemon.lanes.items():
            position = ingest.last_position
            if position is None:
                position = min(stored[lane], journal.opened_at)
            if position:
                await store.skip(new.hex(), lane, 0, position)
    except StoreError as error:
        log.error("daemon.not_forked", error=str(error))
        await trio.sleep(FORK_RETRY_S)
        return bytes.fromhex(journal.journal_id)
    log.warning("daemon.forked", journal=new.hex(), before=journal.journal_id)
    return new


@asynccontextmanager
async def _store_settings(config: Config) -> AsyncIterator[StoreConfig]:
    """Of the store the operator named, or of one of our own in the data directory."""
    if config.store.url:
        yield config.store
        return
    async with open_embedded(config.data_dir / "store") as url:
        yield dataclasses.replace(config.store, url=url)


async def _watch_signals(
    stop: trio.Event, drain_s: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """First signal: stop in order. Second: end now; the journal makes that safe."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set():
                log.warning("daemon.ended_by_second_signal", signal=signal.Signals(number).name)
                os._exit(0)
            log.info("daemon.signal", signal=signal.Signals(number).name)
            deadline = threading.Timer(drain_s + EXIT_GRACE_S, _end_overdue, [drain_s])
            deadline.daemon = True
            deadline.start()
            stop.set()


def _end_overdue(drain_s: float) -> None:
    """A peer that does not read its answer can hold the HTTP server for ever. All that was promised is on disk."""
    log.error("daemon.ended_overdue", drain_s=drain_s)
    os._exit(0)
