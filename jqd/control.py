"""Answers the service's questions about the whole daemon: readiness, warnings, counters, and progress of the journal.

Readiness has two halves: pushing only needs the journal; running jobs also needs the store.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from prometheus_client import Metric

from jqd import __version__
from jqd.cron.schedules import Schedules
from jqd.domain.dates import iso
from jqd.domain.diagnostic import Diagnostic
from jqd.domain.errors import Overloaded, StaleOwner, StoreAway
from jqd.domain.job import Job
from jqd.domain.joblog import Row, job_fields
from jqd.domain.lease import Peer
from jqd.domain.log import get_logger
from jqd.domain.lossy_stream import dropped_lines
from jqd.domain.record import Lane
from jqd.domain.tally import NAMES_MAX
from jqd.domain.tenant import annotate, bare
from jqd.history.loop import HistoryLoop
from jqd.http import Certificate
from jqd.journal.disk import examine_room
from jqd.loops.backpressure import Backpressure
from jqd.loops.retention.retention import Retention
from jqd.loops.watch import watch_disk, watch_nothing
from jqd.metrics.own import Own, families
from jqd.notify.loop import make_notices
from jqd.partition import Partition
from jqd.reload import Reload
from jqd.runner import Runners, WorkerHealth
from jqd.runner.departures import Gone, Kind
from jqd.service import JobSpec, Services
from jqd.service.rates import sample
from jqd.shared_parts import SharedParts
from jqd.store import Owner
from jqd.tenants.quotas import Quotas

QUOTA_WAIT_S = 60.0  # followers that wait so long for a quota are a warning, like a late date of a schedule
MANY_PARENTS = 10_000  # jobs of a tenant with waiting followers: some MB in the store, at worst 10 GB
UNREAD = "the settings in its journal are not read yet"
SHELVES_SHOWN_MAX = 10  # tenants with waiting followers that warnings name
SICK_SHOWN_MAX = 10  # workers in trouble that warnings name; `GET /v1/workers` lists all


class Control:
    """Answers questions about the whole daemon by asking its parts."""

    def __init__(
        self, shared: SharedParts, partitions: Sequence[Partition], runners: Runners, retention: Retention
    ) -> None:
        self.draining = False
        self.schedules: Schedules | None = None
        """Set by the daemon after this object is made; so is `quotas`."""
        self.quotas: Quotas | None = None
        self.reload: Reload | None = None
        """Reloads the configuration; None if it cannot be reloaded."""
        self.certificate: Certificate | None = None
        """The listener's certificate; set once the listener exists."""
        self._disk = watch_nothing()
        self._shared = shared
        self._surplus = shared.config.process.surplus
        self._journal = shared.journal
        self._partitions, self._runners, self._retention = partitions, runners, retention
        self._log = get_logger("push").bind()  # bound here, because binding takes too long for each push
        self._started_at_s = shared.clock.mono_s()
        self._had = [shared.journal.opened_at] * len(partitions)  # position up to which each partition had all records
        stores = [partition.store for partition in partitions]
        self.pressure = Backpressure(shared.config.pressure, stores, self._behind_bytes, shared.source)
        shared.meter.own = self._samples
        self._tally = shared.joblog.tally
        self.history = HistoryLoop(store=stores[0], daemon=self.sysid, tally=self._tally, now_ms=shared.clock.wall_ms)
        to = shared.config.notify
        self.notices = make_notices(to, stores=stores, sysid=self.sysid, clock=shared.clock, source=shared.source)

    @property
    def sysid(self) -> str:
        """Return this daemon's name in the store (its sysid)."""
        return self._partitions[0].membership.sysid

    def watch_disk(self, directory: Path, *looks: Callable[[], Iterable[Diagnostic]]) -> None:
        """Set up regular checks of the journal's disk; call it before the daemon runs. `looks`: additional checks."""
        looks = (partial(self._shared.meter.look_at_disk, directory), *looks)
        self._disk = watch_disk(partial(examine_room, directory), *looks)

    def loops(self, services: Services) -> Sequence[Callable[..., Awaitable[None]]]:
        """Return the daemon's loops that only observe, measure, or notify the administrator."""
        lag = partial(self._shared.meter.watch, lambda: self._journal.end, self._behind_bytes)
        notices = [self.notices.run] if self.notices else ()
        return lag, self.pressure.run, self._disk.run, self.history.run, partial(sample, services), *notices

    def push_ready(self) -> str | None:
        """Return why pushes are refused; None if they are accepted."""
        if self.draining:
            return "this daemon is shutting down; push to another or try again in a moment"
        return self._surplus or self._journal.refusing

    def pressed(self) -> Overloaded | None:
        """Return the error for a push if too much work is waiting (backpressure); None if pushes are accepted."""
        return self.pressure.refusal() if self.pressure.reached else None

    def run_ready(self) -> str | None:
        """Return why no jobs are run; None if jobs are run."""
        if self.draining:
            return "this daemon is shutting down"
        reasons = [partition.not_ready_reason for partition in self._partitions]
        return reasons[0] if all(reasons) else None

    def in_a_line(self) -> str:
        """Return the daemon's state in one line, for the service manager."""
        unread = None if self._shared.workers.settings.loaded.is_set() else UNREAD
        halves = (("takes jobs", unread or self.push_ready()), ("runs jobs", unread or self.run_ready()))
        return "; ".join(does if reason is None else f"{does} NOT: {reason}" for does, reason in halves)

    def warnings(self) -> list[str]:
        """Return texts about what is wrong, although the daemon as a whole works."""
        failing = (self._shared.joblog.failing, self._retention.standstill.complaint)
        found = (finding for partition in self._partitions for finding in partition.watch.warnings)
        not_ready = [
            (each.number, reason) for each in self._partitions if (reason := each.not_ready_reason) is not None
        ]
        sick = [worker for worker in self._shared.workers.list() if worker.trouble]
        waiting = [] if len(not_ready) == len(self._partitions) else not_ready
        return [
            *([self._surplus] if self._surplus else ()),
            *self._journal.stats().damaged,
            *(reason for reason in failing if reason),
            *dict.fromkeys(found),
            *(odd for partition in self._partitions if (odd := partition.store.burial.complaint)),
            *self._disk.warnings,
            *(odd for partition in self._partitions if (odd := partition.outbox.complaint)),
            *(odd for partition in self._partitions if (odd := partition.flows.complaint)),
            *self._shelf_warnings(),
            *dict.fromkeys(odd for partition in self._partitions if (odd := partition.membership.complaint)),
            *dict.fromkeys(odd for partition in self._partitions if (odd := partition.ageing.complaint)),
            *self._shared.workers.settings.complaints(),
            *self._shared.capacity.complaints(),
            *self._shared.constraints.complaints(),
            *(self.reload.complaints if self.reload else ()),
            *((wrong,) if self.certificate and (wrong := self.certificate.complaint) else ()),
            *((unkept,) if (unkept := self.history.complaint) else ()),
            *((pressed,) if (pressed := self.pressure.reason) else ()),
            *(self.schedules.complaints() if self.schedules else ()),
            *(self.quotas.complaints() if self.quotas else ()),
            *(self.notices.complaints() if self.notices else ()),
            *(f"the jobs of partition {number} of the store wait: {reason}" for number, reason in waiting),
            *(f"worker {worker.name!r} ({worker.id}) says: {worker.trouble}" for worker in sick[:SICK_SHOWN_MAX]),
        ]

    def waiting_parents(self, tenant: str) -> int:
        """Return how many jobs of a tenant have followers that wait until the tenant's quota has room."""
        shelves = (each.outbox.shelves.get(tenant) for each in self._partitions)
        return sum(shelf.entries for shelf in shelves if shelf is not None)

    def waits_for_quota(self, tenant: str) -> bool:
        """Return whether followers of a tenant's jobs were waiting for its quota when the store was last asked."""
        return any(each.outbox.waits_for_quota(tenant) for each in self._partitions)

    def quota_wait_warning(self, tenant: str) -> str | None:
        """Return a warning about a tenant's followers that wait for its quota, if they wait for long or are many; else
        None. (Followers that wait only seconds are normal if the quota is a rate.)"""
        since_ms = self._waiting_since_ms(tenant)
        is_much = (jobs := self.waiting_parents(tenant)) >= MANY_PARENTS
        if since_ms is None or not (is_much or since_ms <= self._shared.clock.wall_ms() - QUOTA_WAIT_S * 1000):
            return None
        text = f"what follows {jobs} jobs of tenant {tenant!r} waits since {iso(since_ms)} for its quota"
        todo = "it takes room in the store: raise the quota, or pause the jobtypes that make so many follow"
        return f"{text}; these are {MANY_PARENTS} or more, and {todo}" if is_much else text

    def _waiting_since_ms(self, tenant: str) -> int | None:
        shelves = (each.outbox.shelves.get(tenant) for each in self._partitions)
        return min((shelf.since_ms for shelf in shelves if shelf is not None), default=None)

    def _shelf_warnings(self) -> list[str]:
        """Return warnings about followers that wait for a quota, one for each tenant: first tenants with very many,
        then those whose followers have waited longest."""
        tenants = sorted(
            {tenant for each in self._partitions for tenant in each.outbox.shelves},
            key=lambda tenant: (self.waiting_parents(tenant) < MANY_PARENTS, self._waiting_since_ms(tenant) or 0),
        )
        rows = [text for tenant in tenants if (text := self.quota_wait_warning(tenant)) is not None]
        more = len(rows) - SHELVES_SHOWN_MAX
        return [
            *rows[:SHELVES_SHOWN_MAX],
            *([f"and that of {more} more tenants; `jqd quotas` shows them"] * (more > 0)),
        ]

    def _shelves(self) -> dict[str, int]:
        tenants = {tenant for each in self._partitions for tenant in each.outbox.shelves}
        return {"tenants": len(tenants), "jobs": sum(map(self.waiting_parents, tenants))}

    def entered(self, job_ids: Sequence[str], jobs: Sequence[JobSpec], tenant: str = "") -> None:
        """Count and log pushed jobs that are in the journal now. `job_ids`: the daemon's ids of the jobs."""
        self._log.debug("push.batch", count=len(jobs))
        pushed = self._tally.pushed  # counted without a call, because each push pays for it
        for job in jobs:
            of = tenant, job.name
            pushed[of] = pushed.get(of, 0) + 1
        if len(pushed) >= NAMES_MAX:
            self._tally.settle()
        if not self._shared.joblog.is_on:
            return
        rows = (
            job_fields(job_id, annotate(tenant, job.name), job.tags, job.job_id)
            for job_id, job in zip(job_ids, jobs, strict=True)
        )
        self._shared.joblog.write("entered", rows)

    def followed(self, jobs: Sequence[Job]) -> None:
        """Count and log followers that came with their parent's outcome. They count as pushed jobs."""
        pushed = self._tally.pushed
        for of in ((job.tenant, bare(job.jobtype)) for job in jobs):
            pushed[of] = pushed.get(of, 0) + 1
        if len(pushed) >= NAMES_MAX:
            self._tally.settle()
        rows = ({**job_fields(job.id, job.jobtype, job.tags), "pusher_id": bare(job.name)} for job in jobs)
        self._shared.joblog.write("entered", rows)

    def listening(self, listener: Callable[[Sequence[Row]], None]) -> AbstractContextManager[None]:
        """Call `listener` with the rows of the job log as they are written, during the `with` block."""
        return self._shared.joblog.listening(listener)

    def settled(self, where: Collection[int]) -> bool:
        """Return whether all daemons have applied their journals to the partitions `where`, so what these answer is
        final."""
        return all(self._partitions[number].membership.settled for number in where)

    async def wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        """Wait up to `timeout_s` until this journal's lane is applied to the partitions `where` up to `position`.
        Return whether it is."""
        with trio.move_on_after(timeout_s):
            for number in where:
                await self._partitions[number].lanes[lane].wait_caught_up(position)
            return True
        return False

    async def wait_ingested(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until all records journaled here are in the store, with jobs' links to other jobs.
        Return whether they are. Partitions that are known to be away are not waited for."""
        end = self._journal.end
        there = [partition for partition in self._partitions if partition.flows.backoff.reason is None]

        async def wait(partition: Partition) -> None:
            for lane in (Lane.JOBS, Lane.CHANGES, Lane.OUTCOMES, Lane.CANCELS):
                await partition.lanes[lane].wait_caught_up(end)
            await partition.flows.wait_links_applied()

        with trio.move_on_after(timeout_s) as waiting:
            async with trio.open_nursery() as nursery:
                for partition in there:
                    nursery.start_soon(wait, partition)
        return len(there) == len(self._partitions) and not waiting.cancelled_caught

    def daemons(self) -> list[Peer]:
        """Return the daemons of the store, by the last heartbeats; each in its worst state in any partition."""

        def rank(peer: Peer) -> tuple[int, bool]:
            return 2 if peer.living is None else int(peer.living), peer.through

        worst: dict[str, Peer] = {}
        for partition in self._partitions:
            for peer in partition.heartbeat.peers():
                known = worst.setdefault(peer.sysid, peer)
                if rank(peer) < rank(known):
                    worst[peer.sysid] = peer
        return list(worst.values())

    def sharers(self) -> list[str]:
        """Return the daemons that share workers' slots, this one first: all that are alive in some partition."""
        living = {peer.sysid for partition in self._partitions for peer in partition.heartbeat.peers() if peer.living}
        return [self.sysid, *sorted(living - {self.sysid})]

    def posted(self, worker_id: str) -> int:
        """Return how many jobs this daemon has sent to a worker and has no outcome of yet."""
        return self._shared.capacity.in_flight(worker_id)

    def seen(self, worker_id: str) -> dict[str, WorkerHealth]:
        """Return, for each living daemon, how it sees the health of a worker."""
        return self._shared.worker_views.of(worker_id, self.sharers())

    def gone(self, kind: Kind) -> list[Gone]:
        """Return the daemons, or the workers, that went away within the last 24 hours, the latest first."""
        return self._shared.worker_views.gone(kind)

    def urls(self, peer: str | None, *, absent: bool = False) -> list[str]:
        """Return the URLs of the living daemons as a client at the address `peer` can use them, this daemon's first.

        `absent`: whether to include daemons that were seen recently but are not alive now.
        """
        others = self._shared.worker_views.recent() if absent else []
        return self._shared.worker_views.urls(dict.fromkeys([*self.sharers(), *others]), peer)

    def place(self, machine: str | None = None) -> tuple[int, int]:
        """Return this daemon's index, by name, among the daemons that take pushes, and the number of these daemons.
        `machine`: count only daemons that send jobs to workers on this machine ("": to any workers)."""
        others = [name for name in self.sharers()[1:] if self._shared.worker_views.begins(name, machine)]
        if self._surplus:
            return len(others), max(1, len(others))  # a surplus process comes after all others, so it has no share
        return sum(name < self.sysid for name in others), len(others) + 1

    async def in_flight(self, sysid: str) -> int | None:
        """Return how many jobs a daemon holds; None while the store is away. Raises StoreRefused."""
        total = 0
        for partition in self._partitions:
            for peer in partition.heartbeat.peers():
                if peer.sysid == sysid and peer.epoch:
                    try:
                        total += len(await partition.store.get_held(Owner(sysid, peer.epoch)))
                    except StaleOwner:
                        continue  # it left, or its epoch was ended since, so it holds nothing
                    except StoreAway:
                        return None
        return total

    def stats(self) -> dict[str, object]:
        """Return the counters of this daemon for `GET /v1/stats`.

        With several partitions, `partitions` has a row for each. `lanes` then has the positions that all partitions
        have reached, and the other fields are those of the first partition."""
        rows = [self._look(partition) for partition in self._partitions]
        lanes = {
            lane.name.lower(): self._place(lane, _least(partition.lanes[lane].done for partition in self._partitions))
            for lane in Lane
        }
        return {
            "daemon": self.sysid,
            "version": __version__,
            "uptime_s": round(self._shared.clock.mono_s() - self._started_at_s, 3),
            "journal": self._journal.stats(),
            **rows[0],
            "lanes": lanes,
            "runner": self._runners.stats(),
            "pressure": self.pressure.stats(),
            "schedules": self.schedules.stats() if self.schedules else {},
            "shelves": self._shelves(),
            **({"notices": self.notices.counts} if self.notices else {}),
            "log": {"dropped_lines": dropped_lines()},
            **({"partitions": [{"partition": number, **row} for number, row in enumerate(rows)]} if rows[1:] else {}),
        }

    def _samples(self) -> Iterable[Metric]:
        """Return the metrics about this daemon for `GET /metrics`."""
        meter, clock, reaps = self._shared.meter, self._shared.clock, [each.reap for each in self._partitions]
        ends_ms = self.certificate.ends_ms if self.certificate else None
        own = Own(
            stats=self.stats(),
            fsync_s=self._journal.figures.seconds,
            ready=None if self._surplus else (self.push_ready() is None, self.run_ready() is None),
            warnings=len(self.warnings()),
            started_at_s=clock.wall_ms() / 1000 - (clock.mono_s() - self._started_at_s),
            lag_s=meter.lag.seconds,
            behind_bytes=self._behind_bytes(),
            disk_free_bytes=meter.disk_free_bytes,
            daemons_taken_over=max(reap.daemons for reap in reaps),
            jobs_taken_over=sum(reap.jobs for reap in reaps),
            certificate_ends_at_s=ends_ms / 1000 if ends_ms is not None else None,
        )
        return families(own)

    def _behind_bytes(self) -> int:
        """Return how many bytes, of those journaled since the daemon's start, some partition has not had yet.

        If a store was emptied or rolled back, it gets older bytes again; these do not count, so pushes are accepted.
        """
        for number, partition in enumerate(self._partitions):
            applied = [
                self._journal.reached(lane, done)
                for lane, ingest in partition.lanes.items()
                if (done := ingest.done) is not None
            ]
            if len(applied) == len(partition.lanes):
                self._had[number] = max(self._had[number], min(applied))
        return self._journal.end - min(self._had)

    def _look(self, partition: Partition) -> dict[str, Any]:
        owner = partition.membership.owner
        return {
            "epoch": owner.epoch if owner else None,
            "durability": partition.store.durability_rule,
            "not_ready_reason": partition.not_ready_reason,
            "lanes": {lane.name.lower(): self._place(lane, ingest.done) for lane, ingest in partition.lanes.items()},
        }

    def _place(self, lane: Lane, position: int | None) -> dict[str, int | None]:
        """Return up to where a lane is applied (None: unknown), and the journal's end; equal if no record is left."""
        applied = None if position is None else self._journal.reached(lane, position)
        return {"applied": applied, "end": self._journal.end}


def _least(positions: Iterable[int | None]) -> int | None:
    """Return the lowest of some journal positions; None if one of them is unknown."""
    known = list(positions)
    return None if None in known else min(position for position in known if position is not None)
