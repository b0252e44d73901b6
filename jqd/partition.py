"""The part of a daemon that works for one partition of the store: the membership there, the running jobs, and the
loops.

    journal ──lanes──▶ store ──claims──▶ runner ──outcomes──▶ journal      one such circle per partition

A partition is a store of its own and may be on another server. If it cannot be reached, only its own jobs have to wait.
All partitions share the journal, the workers and the scheduler, which decides which jobs are claimed next
(docs/adr/0009).
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import trio

from jqd.chaining.flows import Flows
from jqd.chaining.outbox import Outbox
from jqd.domain.dates import iso
from jqd.domain.errors import StoreError
from jqd.domain.log import get_logger, logging_with
from jqd.domain.pauses import DRAIN, Pauses
from jqd.domain.record import Lane
from jqd.lanes import PartitionLanes
from jqd.loops.ageing import Ageing
from jqd.loops.backoff import LoopBackoff
from jqd.loops.claims import Claims
from jqd.loops.heartbeat import Heartbeat
from jqd.loops.membership import Membership
from jqd.loops.outcomes import OutcomesLoop
from jqd.loops.progress import Progress
from jqd.loops.purge import Purge
from jqd.loops.reap import Reap
from jqd.loops.retention.partition import PartitionRetention
from jqd.loops.settings import SettingsSync
from jqd.loops.watch import Watch
from jqd.loops.worker_slots import WorkerSlots
from jqd.loops.worker_timeouts import WorkerTimeouts
from jqd.recovery.recovery import Recovery
from jqd.runner import Runner
from jqd.shared_parts import SharedParts
from jqd.store import Store

SETTLE_S = 3.0  # the part of the drain time that is reserved for writing and applying the last outcomes
STILL_S = 3.0  # a store that applied nothing for so long is away, and a stop does not wait for it any longer
LEAVE_S = (
    2.0  # to give jobs back and leave the store; otherwise other daemons take them over when the lease has expired
)

log = get_logger("daemon")


class Partition:
    """The part of a daemon that works for one partition of the store. `start` starts its loops."""

    def __init__(self, shared: SharedParts, number: int, store: Store, watch: Watch) -> None:
        config, clock, source, gone = shared.config, shared.clock, shared.source, shared.workers.departures
        sysid = shared.journal.journal_id[:10]
        self.number, self.store, self.watch, self._shared = number, store, watch, shared
        self._log_fields = {"partition": number} if shared.partitions > 1 else {}
        # The daemon's own store is in its data directory, so no other daemon can hold jobs in this store.
        self.membership = Membership(sysid, config.lease, clock, sole=config.store.is_own)
        self._drains = Pauses(shared.workers.settings, DRAIN)
        self.runner = self._build_runner(sysid)
        self.ageing = Ageing(store, self.membership, clock, shared.scheduler.period_ms)
        self.claims = self._build_claims()
        self.outcomes = self._build_outcomes()
        self.reap = Reap(store=store, membership=self.membership, clock=clock, source=source, departures=gone)
        self.heartbeat = Heartbeat(
            store=store,
            membership=self.membership,
            clock=clock,
            source=source,
            stop_work=self.runner.stop_work,
            cancelled=self.runner.cancel,
            seen=self.reap.note_members,
        )
        self.outbox = Outbox(store=store, push=shared.push, clock=clock, source=source)
        self.flows = Flows(number, shared.stores, shared.settled, shared.release, clock=clock, source=source)
        lanes = PartitionLanes(
            shared,
            number,
            store,
            watch=watch,
            membership=self.membership,
            runner=self.runner,
            claims=self.claims,
            outbox=self.outbox,
            flows=self.flows,
        )
        self.lanes = lanes.build(lambda: self.recovery.rolled_back())
        self.settings_sync = SettingsSync(
            store=store,
            membership=self.membership,
            workers=shared.workers,
            views=shared.worker_views,
            own_applied=lambda: not self.lanes[Lane.RULES].is_behind,
            clock=clock,
            source=source,
        )
        self.recovery = self._build_recovery()
        self.progress = self._build_progress()
        self.purge = Purge(store=store, source=source)
        self.worker_slots = WorkerSlots(store=store, capacity=shared.capacity, mine=lanes.is_mine, source=source)
        self.worker_timeouts = WorkerTimeouts(
            journal=shared.journal, store=store, membership=self.membership, clock=clock, source=source,
            backoff=config.backoff, departures=gone,
        )  # fmt: skip

    def loops(self) -> list[Callable[..., Any]]:
        """Return all loops that must run until the last outcome is in the store, in the order in which to start
        them."""
        # Any daemon can do the work of these loops; a surplus process must not, because its journal is to become empty.
        writing = [] if self._shared.config.process.surplus else [self.outbox.run, self.flows.run]
        return [
            self.runner.run,
            self.heartbeat.run,
            self.heartbeat.run_trust_check,
            self.reap.run,
            self.worker_slots.run,
            self.outcomes.run,
            self.outcomes.run_returns,
            self.purge.run,
            *writing,
            self.watch.run,
            self.progress.run,
            self.recovery.run,
            self.settings_sync.run,
            *(lane.run for lane in self.lanes.values()),
        ]

    async def start(self, nursery: trio.Nursery, loops: Sequence[Callable[..., Any]]) -> None:
        """Start loops of this partition. If there are several partitions, the log lines of the loops contain the
        partition's number."""
        with logging_with(**self._log_fields):
            for loop in loops:
                await nursery.start(loop)

    async def shut_down(self, drain_s: float) -> None:
        """Wait for running jobs, write their outcomes, give back jobs that were not started, wait until the store has
        what else is in the journal, and leave the store.

        Each stage has a time limit, and no job is lost if one of them runs out. The membership is not released while
        outcomes are missing in the store, because other daemons would run those jobs again at once. Then the next
        process of this daemon takes it over and applies the outcomes, or other daemons end it when its lease has
        expired.
        """
        until_s = trio.current_time() + drain_s - LEAVE_S
        with trio.move_on_at(until_s - SETTLE_S):
            await self.runner.drain()
        self.runner.stop_work("its daemon was stopped, and did not wait for it any longer")
        with trio.move_on_at(until_s - SETTLE_S):  # even a slow disk may have written the outcomes by then
            while self.outcomes.unwritten:  # noqa: ASYNC110 - as below
                await trio.sleep(0.02)
        with trio.move_on_after(SETTLE_S) as settling:
            await self._drain_outcomes()
        if not settling.cancelled_caught:
            await self._drain_lanes(until_s)
        owner = self.membership.leave()
        if settling.cancelled_caught:
            log.warning("daemon.not_left", error="not all outcomes are in the store: the next start tells them")
            return
        with trio.move_on_after(LEAVE_S):
            if owner is not None:
                try:
                    await self.store.release_sysid(owner)
                except StoreError as error:
                    log.warning("daemon.not_left", error=str(error))

    async def _drain_outcomes(self) -> None:
        """Wait until all outcomes are in the journal and the store, and all jobs that were not started are given back
        to the store."""
        while self.runner.in_flight or self.outcomes.pending:  # noqa: ASYNC110 - three parts, one short moment
            await trio.sleep(0.02)
        await self.lanes[Lane.OUTCOMES].wait_caught_up(self._shared.journal.end)

    async def _drain_lanes(self, until_s: float) -> None:
        """Wait until the store has all records of the journal: no longer than `until_s`, and only while it applies
        some. A daemon that is removed for good after its stop then leaves no jobs behind."""
        before, moved_s = 0, trio.current_time()
        while (left := self.behind_bytes) and trio.current_time() < min(until_s, moved_s + STILL_S):
            if left != before:
                before, moved_s = left, trio.current_time()
            await trio.sleep(0.02)

    def log_left(self) -> None:
        """Log if the store may lack some of the journal. Called when nothing more can be acknowledged: also while the
        lanes end, a request under way may be."""
        if left := self.behind_bytes:
            why = "the store may lack some of what was acknowledged: this daemon's next start applies it"
            with logging_with(**self._log_fields):
                log.warning("daemon.journal_left", bytes=left, error=why)

    @property
    def behind_bytes(self) -> int:
        """Return how many bytes of the journal lie behind the first record that the store is not known to have, also
        those not on disk yet; 0: it has all."""
        journal, lanes = self._shared.journal, self.lanes.values()
        behind = [journal.read_point(lane.lane, lane.reader) for lane in lanes if lane.is_behind]
        return journal.written - min(behind, default=journal.end)

    @property
    def retention(self) -> PartitionRetention:
        """Return what retention (the deletion of old journal segments) must know about this partition."""
        return PartitionRetention(self.store, self.membership, self.lanes, lambda: self.watch.reason is not None)

    @property
    def not_ready_reason(self) -> str | None:
        """Return why no jobs of this partition are run now; None if they are."""
        return self._known_not_ready_reason() or self.progress.reason

    def _known_not_ready_reason(self) -> str | None:
        always = (backoff.reason for backoff in self._backoffs())
        standing = (self.membership.not_ready_reason(), self.claims.reason, self._barred())
        # These two try only while claims are allowed, so otherwise they keep an error that may be over by now.
        pausing = (self.claims.backoff.reason, self.worker_timeouts.backoff.reason)
        reasons = (self.watch.reason, *always, *standing, *pausing)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def rests(self) -> bool:
        """Return whether this daemon runs no jobs of this partition and starts none, because it is drained or cannot
        write outcomes."""
        return not (self.starts_jobs or self.claims.is_claiming or self.claims.is_working)

    @property
    def starts_jobs(self) -> bool:
        """Return whether jobs may be started here: the daemon is not drained and can write outcomes."""
        return self._barred() is None

    def _barred(self) -> str | None:
        """Return why no job may be started, regardless of the store; None if jobs may be started."""
        return self._drained() or self.outcomes.reason

    def _drained(self) -> str | None:
        sysid = self.membership.sysid
        if (surplus := self._shared.config.process.surplus) is not None:
            return surplus
        if (since_ms := self._drains.since_ms.get(sysid)) is None:
            return None
        return f"this daemon is drained since {iso(since_ms)}: `jqd daemons resume {shlex.quote(sysid)}`"

    def _backoffs(self) -> Sequence[LoopBackoff]:
        lanes = (lane.backoff for lane in self.lanes.values())
        loops = (self.recovery, self.heartbeat, self.settings_sync, self.outbox, self.flows)
        return (*(loop.backoff for loop in loops), *lanes)

    def _build_runner(self, sysid: str) -> Runner:
        shared = self._shared
        return Runner(
            shared.config.runner,
            workers=shared.workers,
            capacity=shared.capacity,
            clock=shared.clock,
            source=shared.source,
            trusts=self.membership.trusts,
            backoff=shared.config.backoff,
            daemon=sysid,
            pool=shared.pool,
            wrong=shared.wrong,
            options=shared.options,
        )

    def _build_outcomes(self) -> OutcomesLoop:
        shared = self._shared
        return OutcomesLoop(
            journal=shared.journal,
            store=self.store,
            runner=self.runner,
            scheduler=shared.scheduler,
            membership=self.membership,
            publish_view=lambda: self.settings_sync.publish_view(),
            source=shared.source,
        )

    def _build_claims(self) -> Claims:
        shared = self._shared
        return Claims(
            store=self.store,
            scheduler=shared.scheduler,
            runner=self.runner,
            membership=self.membership,
            clock=shared.clock,
            source=shared.source,
            started=shared.joblog.started,
            died=shared.joblog.tally.died,
            constraints=shared.constraints,
            outdated=shared.workers.settings.look_again,
            rules_at=lambda: self.settings_sync.rules_at,
            refresh_settings=lambda: self.settings_sync.refresh(),
            barred=self._barred,
            ageing=self.ageing,
            log_fields=self._log_fields,
        )

    def _build_recovery(self) -> Recovery:
        return Recovery(
            journal=self._shared.journal,
            store=self.store,
            membership=self.membership,
            lanes=self.lanes,
            runner=self.runner,
            reap=self.reap,
            outcomes=self.outcomes,
            claims=self.claims.lock,
            source=self._shared.source,
            starts=self._shared.worker_views.starts_jobs,
            period_ms=self._shared.scheduler.period_ms,
        )

    def _build_progress(self) -> Progress:
        shared, lanes = self._shared, self.lanes.values()
        known = self._known_not_ready_reason
        return Progress(journal=shared.journal, lanes=lanes, clock=shared.clock, excused=lambda: known() is not None)
