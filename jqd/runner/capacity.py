"""Capacity of all workers: how many more jobs each may get from all partitions of this daemon, and which worker gets a
job."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Clock
from jqd.domain.job import Held, Wanted
from jqd.domain.pauses import Paused
from jqd.domain.tenant import bare, tenant_of
from jqd.runner.callbacks import Receivers
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.config import RunnerConfig
from jqd.runner.crash_isolation import CrashIsolation
from jqd.runner.crash_site import Site
from jqd.runner.demand import Demand, Linger
from jqd.runner.endpoint import host_of
from jqd.runner.protocols import STYLES
from jqd.runner.pulls import Offer, Pulls
from jqd.runner.registry import WorkerRegistry
from jqd.runner.ssrf import SsrfGuard
from jqd.runner.transport import Connections
from jqd.runner.versions import VersionRoom, follower
from jqd.runner.worker import Worker

if TYPE_CHECKING:
    from jqd.runner.delivery import Delivery

Claim = tuple[str, int]
Posted = tuple[Worker, CircuitBreaker]


class Pause(NamedTuple):
    """A pause that another daemon reported for a worker: until it ends, no jobs are sent to the worker."""

    until_s: float
    registered_at_ms: int
    """Time of the worker's registration that the pause is about; a later registration ignores it."""


NO_PAUSES: Mapping[str, Pause] = {}
DRAWS = 8  # at least so many random draws fill a version's room; with fewer its share would depend on luck
FORGET_ABOVE = 16  # breakers of workers that left, kept beyond twice the number of present workers


class Capacity:
    def __init__(
        self,
        config: RunnerConfig,
        workers: WorkerRegistry,
        source: random.Random,
        clock: Clock,
        connections_max: int = 0,
    ) -> None:
        """`connections_max`: limit of connections to all workers together; the configured limit if this is 0 or
        larger."""
        self._config = config
        self._ssrf = SsrfGuard(config.worker_networks)
        self._workers = workers
        self._source = source
        self._clock = clock
        self.breakers: dict[str, CircuitBreaker] = {}
        self.receivers = Receivers(source)
        self.crash_isolation = CrashIsolation()
        self.requests: dict[Delivery, None] = {}
        """All requests that wait to be sent or are not answered yet."""
        self.sites: dict[tuple[str, str], Site] = {}
        """(Tenant, host and port) → its crash site. Each tenant has its own, so that none slows down another."""
        self._pauses: dict[str, Mapping[str, Pause]] = {}  # daemon → worker's id → its pause
        self.freed = trio.Event()
        self._entrusted: dict[Claim, tuple[CircuitBreaker, str]] = {}
        self.pulls = Pulls(self.note_free)
        self.connections = Connections(
            min(connections_max or config.connections_max, config.connections_max), clock.mono_s, self.note_free
        )
        workers.watch(self.note_free)

    def posting(self) -> list[Posted]:
        workers = [*self._workers.list(), *self._workers.own.values()]
        if len(self.breakers) > 2 * len(workers) + FORGET_ABOVE:
            known = {worker.id for worker in workers}
            self.breakers = {
                name: breaker for name, breaker in self.breakers.items() if name in known or breaker.in_flight
            }
            here = {breaker.place for breaker in self.breakers.values()}
            self.sites = {at: site for at, site in self.sites.items() if at in here or site.at_work}
            urls = {breaker.url for breaker in self.breakers.values()}
            for site in self.sites.values():
                site.keep(urls)
        share, disowned = self._workers.share, self._workers.is_disowned
        posted = (worker for worker in workers if worker.url is not None and share(worker.max_jobs, worker))
        breakers = ((worker, self.breaker(worker)) for worker in posted if not disowned(worker))
        return [(worker, breaker) for worker, breaker in breakers if not breaker.barred]

    def tenants(self) -> int:
        """Count the tenants that have workers."""
        return len({worker.tenant for worker in self._workers.list()})

    def wanted(self, paused: Paused) -> tuple[list[Wanted], bool]:
        now_s, demand = self._clock.mono_s(), Demand(paused.types.names, paused.tenants.names)
        self.pulls.wish(demand)
        posting = self.posting() if self.connections.free else []
        workers = Counter(worker.tenant for worker, _ in posting)
        following = self._following(posting, workers, now_s)
        for worker, breaker in posting:
            if worker.id in following or not self._has_room(worker, breaker, workers, now_s):
                continue
            span = worker.priority_min, worker.priority_max
            if worker.takes_any:
                demand.any_type(span, breaker.not_taken_now(now_s), worker.tenant)
            for jobtype in () if worker.takes_any else worker.jobs or ():
                if breaker.takes(jobtype, now_s):
                    demand.named(jobtype, span)
        return demand.wanted(), bool(posting)

    def _has_room(self, worker: Worker, breaker: CircuitBreaker, workers: Mapping[str, int], now_s: float) -> bool:
        return breaker.has_room(now_s) and bool(self.connections.free_for(worker, workers))

    def _following(self, posting: Sequence[Posted], workers: Mapping[str, int], now_s: float) -> set[str]:
        """Return the ids of handler versions that get no jobs by claims of their own, because the handler's other
        version claims for both."""
        versions = defaultdict[str, list[VersionRoom]](list)
        for worker, breaker in posting:
            if worker.handler and breaker.takes(worker.handler, now_s) and not breaker.is_open(now_s):
                room = self._has_room(worker, breaker, workers, now_s)
                versions[worker.handler].append(VersionRoom(worker, breaker.is_well(now_s), room))
        following = set[str]()
        for both in versions.values():
            if (second := follower(both)) is not None:
                low, high = second.worker.priority_min, second.worker.priority_max
                leads = (each.worker for each in both if each is not second)
                if all(each.priority_min <= low and high <= each.priority_max for each in leads):
                    following.add(second.worker.id)
        return following

    def offer(self, jobtype: str, priority: int, waiting: int | None, linger: Linger) -> Offer | None:
        """Choose the worker for a job of this type and priority: that of a waiting poll, else the one with the most
        free capacity. None: no worker has room, or each waits for a fuller batch. `waiting`: how many jobs of the type
        wait. `linger`: the jobtypes that wait for a fuller batch; updated."""
        if (pull := self.pulls.best(jobtype, priority)) is not None:
            code = self._workers.code(jobtype)
            jobs_max = min(pull.jobs_max, code.options.batch or 1) if code is not None else pull.jobs_max
            return Offer(pull.worker, jobs_max, self._config.batch_bytes_max, pull)
        now_s = self._clock.mono_s()
        roomy, versions = list[tuple[float, int, Worker]](), list[VersionRoom]()
        posting = self.posting() if self.connections.free else []
        workers = Counter(worker.tenant for worker, _ in posting)
        for worker, breaker in posting:
            if not worker.takes(jobtype, priority) or not breaker.takes(jobtype, now_s):
                continue
            free = breaker.free(jobtype, now_s)
            free = min(free, self.connections.free_for(worker, workers) * breaker.post_jobs_max)
            if worker.handler == jobtype and not breaker.is_open(now_s):
                versions.append(VersionRoom(worker, breaker.is_well(now_s), free))
            few, linger_s = min(free, breaker.post_jobs_max), worker.batch_linger_ms / 1000
            if not free or linger.waits(jobtype, waiting, few, linger_s, now_s):
                continue
            roomy.append((free / breaker.window(jobtype), free, worker))
        other = follower(versions)
        if not (roomy := [one for one in roomy if other is None or one[2] is not other.worker]):
            return None
        _, free, worker = max(roomy, key=lambda one: one[:2])
        drawn = (other.worker, other.room) if other is not None and worker.handler else None
        return Offer(worker, free, self._config.batch_bytes_max, None, drawn)

    def divide(self, offer: Offer, jobtype: str, held: Sequence[Held]) -> dict[str, list[Held]]:
        """Divide claimed jobs among workers. Returns worker id → its jobs.

        Only two versions of one handler divide a claim. The first claims for both, and random draws by its share decide
        which requests go to the second, up to its room: never more, or a bad version would get most of the jobs.
        """
        if offer.other is None:
            return {offer.worker.id: [*held]}
        other, most = offer.other
        leader, drawn = list[Held](), list[Held]()
        step = max(1, min(self.breaker(other).post_jobs_max, most // DRAWS))
        for part in (held[at : at + step] for at in range(0, len(held), step)):
            takes = all(other.takes(jobtype, one.job.priority) for one in part)
            room = most - len(drawn) if takes and self._source.random() * 100 < other.share else 0
            drawn += part[:room]
            leader += part[room:]
        return {worker_id: jobs for worker_id, jobs in ((offer.worker.id, leader), (other.id, drawn)) if jobs}

    def breaker(self, worker: Worker) -> CircuitBreaker:
        """Return the circuit breaker of a worker. Makes it, or adapts it to the worker's present registration and this
        daemon's share of its slots."""
        share = self._workers.share
        max_jobs, batch = max(1, share(worker.max_jobs, worker)), STYLES[worker.style].batch(worker)
        if batch is not None and batch > worker.max_jobs:
            batch = max(1, share(batch, worker))  # so that requests of all daemons together hold at most one batch
        breaker = self.breakers.get(worker.id)
        if breaker is None:
            breaker = self.breakers[worker.id] = CircuitBreaker(
                max_jobs=max_jobs,
                batch=batch,
                backoff=Backoff(first_s=self._config.backoff_first_s, cap_s=self._config.backoff_cap_s),
                retry_after_max_s=self._config.retry_after_max_s,
                source=self._source,
            )
        else:
            breaker.resize(max_jobs, batch)
            self._begin(breaker, worker)
        if breaker.worker is not worker:
            breaker.worker, breaker.registered_at_ms = worker, worker.registered_at_ms
            breaker.endpoint, breaker.place, breaker.url = worker.endpoint, worker.place, worker.url or ""
            # Names are not looked up here; they are judged again when they are connected to.
            why_not = self._ssrf.judge_host(host_of(worker.url), worker.policy_here) if worker.url else None
            breaker.barred = why_not or ""
            breaker.site = self.sites.get(breaker.place)
        if self._pauses:
            self._apply(worker.id, breaker)
        return breaker

    def isolate(self, place: tuple[str, str]) -> Site:
        """Return the crash site of a tenant's host and port, which keeps suspected jobs apart from others there. The
        first call makes it from the requests under way to that host and port."""
        if place not in self.sites:
            site = Site(request for request in self.requests if request.worker.place == place)
            self.sites[place] = site
            for breaker in self.at(place[1]):
                if breaker.place == place:
                    breaker.site = site
        return self.sites[place]

    def pauses(self, daemon: str) -> Mapping[str, Pause]:
        return self._pauses.get(daemon, NO_PAUSES)

    def record_pauses(self, daemon: str, pauses: Mapping[str, Pause]) -> None:
        """Replace the pauses (worker id → pause) that another daemon reported."""
        before = self._pauses.pop(daemon, NO_PAUSES)
        if pauses:
            self._pauses[daemon] = pauses
        for worker_id in before.keys() | pauses.keys():
            if (breaker := self.breakers.get(worker_id)) is not None:
                self._apply(worker_id, breaker)
        if before:
            self.note_free()

    def _apply(self, worker_id: str, breaker: CircuitBreaker) -> None:
        pauses = (known[worker_id] for known in self._pauses.values() if worker_id in known)
        ends_s = (pause.until_s for pause in pauses if pause.registered_at_ms == breaker.registered_at_ms)
        breaker.pause(max(ends_s, default=float("-inf")))

    def _begin(self, breaker: CircuitBreaker, worker: Worker) -> None:
        """Reset the breaker of a worker that moved to another host and port, or registered anew.

        If the worker only registered anew while it was unreachable, its back-off stays, and one job probes it first."""
        now_s = self._clock.mono_s()
        moved = breaker.endpoint != worker.endpoint
        afresh = breaker.registered_at_ms != worker.registered_at_ms
        if moved or (afresh and not (breaker.unreached and breaker.is_open(now_s))):
            breaker.begin(now_s)

    def ailing(self) -> dict[str, CircuitBreaker]:
        """Return worker id → breaker, for workers with a failure or complaint, or that this daemon may not connect
        to."""
        return {
            name: breaker
            for name, breaker in self.breakers.items()
            if breaker.failures or breaker.complaint or breaker.barred
        }

    def in_flight(self, worker_id: str) -> int:
        breaker = self.breakers.get(worker_id)
        return breaker.in_flight if breaker is not None else 0

    def at(self, endpoint: str) -> list[CircuitBreaker]:
        """Return the breakers of all workers at a host and port, for an event that concerns them all."""
        return [breaker for breaker in self.breakers.values() if breaker.endpoint == endpoint]

    def entrust(self, breaker: CircuitBreaker, held: Held) -> None:
        """Keep a worker's slot taken for a job that the worker reports later, until the store knows how the job
        ended."""
        self._entrusted[held.job.id, held.fence] = breaker, held.job.jobtype

    def entrusted(self) -> list[Claim]:
        return [*self._entrusted]

    def ended(self, claims: Iterable[Claim]) -> None:
        """Free the slots that `entrust` kept for these jobs, which have ended. Unknown claims are ignored."""
        now_s = self._clock.mono_s()
        for claim in claims if self._entrusted else ():
            if (entrusted := self._entrusted.pop(claim, None)) is not None:
                breaker, jobtype = entrusted
                breaker.give(jobtype, claim[:1], now_s, ended=True)
                self.note_free()

    def note_free(self) -> None:
        self.freed.set()

    async def wait_free(self) -> None:
        """Wait until a slot may have become free or a worker has registered.

        It may return too early. The end of a back-off does not wake it, so the caller also needs a timeout.
        """
        if self.freed.is_set():
            self.freed = trio.Event()  # made here, not where it is set: each job's end sets it, but few waits follow
        await self.freed.wait()

    def complaints(self) -> list[str]:
        return [
            f"worker {each.name} ({each.url}) {breaker.complaint}"
            for each, breaker in self.posting()
            if breaker.complaint
        ]

    def load(self, now_s: float) -> list[dict[str, object]]:
        return [
            {
                "id": bare(worker.id),
                **({"tenant": tenant} if (tenant := tenant_of(worker.id)) else {}),
                "name": worker.name,
                "in_flight": breaker.in_flight,
                "window": breaker.window(),
                "jobs_per_s": round(breaker.rate, 1),
                "backed_off_s": round(max(0.0, breaker.open_until_s - now_s), 3),
                "failures": breaker.failures,
                "complaint": breaker.complaint,
            }
            for worker, breaker in self.posting()
        ]
