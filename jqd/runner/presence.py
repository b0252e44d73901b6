"""Keeps track of which workers are alive, and when each last gave a sign of life to any daemon.

Each daemon judges a worker's silence by its own clock, and only while it gets news of signs of life at other daemons. A
worker whose ttl ran out is removed the next time that workers are read.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from jqd.domain.address import is_loopback
from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.runner.departures import Departures
from jqd.runner.endpoint import host_of
from jqd.runner.worker import Worker

UNREACHABLE_S = 300.0  # longer than a restart or a deploy takes; a worker that is away longer registers again
SILENT = ("expired", "unreachable")  # reasons for the removal of a worker that did not unregister itself
SIGN_S = 30.0  # interval at which signs of life of a worker without ttl are sent to other daemons
SIGNS_PER_TTL = 4  # signs sent in each ttl of a worker with one; it repeats its registration three times in it
PROPAGATION_S = 2.0  # the longest that a sign takes from another daemon to us
BLIND_S = 2.0  # signs are exchanged twice a second; after so long without an exchange, silence does not count
UNTRIED_S = UNREACHABLE_S / 2  # after a failed try and its pause; if jobs waited for the worker it was tried sooner
PLACE_S = 0.25  # how long the number of daemons is cached: each search for work needs it for every worker

Server = tuple[str, str | None, str, str]
"""Tenant, URL, name and style. Registrations that agree in all four are of the same worker."""


@lru_cache(10_000)  # URLs of workers: each search for work asks for every one
def _is_near(url: str) -> bool:
    return is_loopback(host_of(url))


def may_be_silent_s(worker: Worker) -> float:
    """Return for how many seconds a worker may give no sign of life; inf: no limit.

    A worker that pulls need not poll while its slots are full. So without a `ttl` it may be silent for UNREACHABLE_S,
    or for its heartbeat if that is longer.
    """
    if worker.ttl_s is not None:
        return worker.ttl_s
    return math.inf if worker.url is not None else max(UNREACHABLE_S, worker.heartbeat_s or 0.0)


def sign_every_s(worker: Worker) -> float:
    """Return the interval in seconds at which this daemon passes a worker's signs of life on to other daemons. A poll
    that waits counts as a sign as often."""
    return SIGN_S if worker.ttl_s is None else min(SIGN_S, worker.ttl_s / SIGNS_PER_TTL)


class WorkerIndex:
    """Registered workers by id, oldest registration first. Counts workers and jobtypes by tenant."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self.get = self._workers.get
        self._servers: dict[Server, dict[str, None]] = {}
        self._is_ordered = True
        self._last = (0, "")  # sort key of the last worker, while they are in order
        self.tenants: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        """Tenant → how many jobtypes its workers name, added up over all its workers."""

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def __iter__(self) -> Iterator[Worker]:
        if not self._is_ordered:
            ordered = sorted(self._workers.values(), key=_place)
            self._workers.clear()
            self._workers.update((one.id, one) for one in ordered)
            self._is_ordered = True
            self._last = _place(ordered[-1]) if ordered else (0, "")
        return iter(self._workers.values())

    def at(self, server: Server) -> Worker | None:
        found = [self._workers[worker_id] for worker_id in self._servers.get(server, ())]
        return min(found, key=_place, default=None)

    def put(self, worker: Worker) -> None:
        known, place = self._workers.get(worker.id), _place(worker)
        if known is not None:
            self._is_ordered = self._is_ordered and _place(known) == place
            self._count_out(known)
        else:
            self._is_ordered = self._is_ordered and place >= self._last
            self._last = place
        self._workers[worker.id] = worker
        self._servers.setdefault(_server(worker), {})[worker.id] = None
        self.tenants[worker.tenant] += 1
        self.names[worker.tenant] += len(worker.jobs or ())

    def pop(self, worker_id: str) -> Worker | None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._count_out(worker)
        return worker

    def _count_out(self, worker: Worker) -> None:
        there = self._servers[_server(worker)]
        del there[worker.id]
        if not there:
            del self._servers[_server(worker)]
        self.tenants[worker.tenant] -= 1
        self.names[worker.tenant] -= len(worker.jobs or ())


def _place(worker: Worker) -> tuple[int, str]:
    return worker.registered_at_ms, worker.id


def _server(worker: Worker) -> Server:
    return worker.tenant, worker.url, worker.name, worker.style


class Presence(ABC):
    """The part of the registry that knows which workers are alive. It is read for each job, so it must be fast."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = get_logger("workers")
        self._workers = WorkerIndex()
        self._versions: dict[str, Worker] = {}  # versions of handlers
        self.own: dict[str, Worker] = {}
        """Id → worker for the daemon's own workers, which deliver callbacks. Nobody registered them, and no list shows
        them."""
        self.departures = Departures(clock)
        self._lasting_s = math.inf  # until then no registration's ttl runs out
        self._seen_at_s: dict[str, float] = {}
        """Worker → its last sign of life, shifted by the time during which no signs could arrive. If expired: the end
        of its ttl."""
        self._unreachable_s: dict[str, tuple[float, float]] = {}
        """Worker → since when it has been unreachable, and when the pause after the last attempt ends."""
        self._signed_at_s: dict[str, float] = {}  # worker → its last sign
        self._shared_at_s: dict[str, float] = {}  # worker → when a sign was last sent to other daemons
        self._looked_at_s: float | None = None  # last exchange of signs with other daemons; None: there was none
        self._outgoing: list[set[str]] = []  # the sets that `signs` returned
        self.place: Callable[[str | None], tuple[int, int]] = lambda machine: (0, 1)
        """Returns this daemon's index, from 0, and the number of living daemons that share a worker's slots. The
        argument is the machine that can reach the worker; "": all can; None: counts the daemons that accept pushes."""
        self._placed: dict[str, tuple[tuple[int, int], float]] = {}  # machine → what `place` said, until when
        self.token_ended: Callable[[str], bool] = lambda token: False
        """Returns whether a token with this id, or a token that it was derived from, was revoked, has expired or is
        unknown."""

    # ------------------------------------------------------------ reading

    def get(self, worker_id: str) -> Worker | None:
        if self._now_s() > self._lasting_s:
            self._expire()
        return self._workers.get(worker_id) or self._versions.get(worker_id) or self.own.get(worker_id)

    def list(self) -> list[Worker]:
        """Return all workers: oldest registration first, then versions of handlers."""
        self._expire()
        return [*self._workers, *self._versions.values()]

    def is_disowned(self, worker: Worker) -> bool:
        """Return whether the token that registered the worker has ended, so that no jobs may be posted to it.

        False for a worker that pulls: it sends a token with each request.
        """
        return worker.url is not None and bool(worker.token) and self.token_ended(worker.token)

    def share(self, of: int, worker: Worker) -> int:
        """Return this daemon's part of `of` slots of a worker: the parts of all daemons that can reach the worker add
        up to `of`. A worker with a loopback address is reached only from the machine where it registered."""
        now_s = self._clock.mono_s()
        machine = worker.machine if worker.url is not None and _is_near(worker.url) else ""
        (number, daemons), until_s = self._placed.get(machine, ((0, 1), -math.inf))
        if now_s >= until_s:
            number, daemons = self.place(machine)
            self._placed[machine] = (number, daemons), now_s + PLACE_S
        return of // daemons + (number < of % daemons)

    # ------------------------------------------------------------ signs of life

    def signs(self) -> set[str]:
        """Return a new set, to which the ids of workers are added from now on when they give a sign of life here. The
        caller sends the ids to other daemons and empties the set."""
        self._outgoing.append(collected := set[str]())
        return collected

    def reached(self, worker_id: str) -> None:
        """Note a sign of life: the worker answered or made a request. If its registration had expired, it becomes valid
        again."""
        worker = self._workers.get(worker_id) or self._back(worker_id)
        if worker is None:
            return
        if worker_id in self._unreachable_s:
            del self._unreachable_s[worker_id]
        self._signed_at_s[worker_id] = self._clock.mono_s()
        now_s = self._seen_at_s[worker_id] = self._now_s()
        since_shared_s = now_s - self._shared_at_s.get(worker_id, -SIGN_S)
        if since_shared_s >= SIGN_S or (worker.ttl_s is not None and since_shared_s >= sign_every_s(worker)):
            self._shared_at_s[worker_id] = now_s
            for collected in self._outgoing:
                collected.add(worker_id)

    def record_signs(self, ages_ms: Mapping[str, int]) -> None:
        """Note how long ago workers (id → ms) gave a sign of life at some daemon. The caller calls this even with no
        workers: each call shows that signs of other daemons arrive, so that a worker's silence counts."""
        now_s = self._clock.mono_s()
        if self._looked_at_s is not None and (blind_s := now_s - self._looked_at_s - BLIND_S) > 0:
            self._seen_at_s = {worker_id: at_s + blind_s for worker_id, at_s in self._seen_at_s.items()}
        self._looked_at_s = now_s
        for worker_id, age_ms in ages_ms.items():
            self._note_age(worker_id, age_ms)
            if worker_id in self._workers:
                self._seen_at_s[worker_id] = now_s + PROPAGATION_S
            else:
                self._back(worker_id)

    def unreachable(self, worker_id: str, pause_s: float = 0.0) -> None:
        """Note that the worker could not be reached. `pause_s`: for how long it is not tried again.

        Once it was unreachable for UNREACHABLE_S it is unregistered, unless other daemons had signs of life from it:
        then only the network from here is at fault.
        """
        if worker_id in self._workers:
            now_s = self._now_s()
            since_s, last_s = self._unreachable_s.get(worker_id, (now_s, now_s))
            if now_s - last_s > UNTRIED_S:
                since_s = now_s  # nobody tried in between, so it may have been reachable
            self._unreachable_s[worker_id] = since_s, now_s + pause_s
            if now_s - max(since_s, self._seen_at_s[worker_id]) >= UNREACHABLE_S:
                self.unregister(worker_id, "unreachable")

    def is_overdue(self, worker: Worker) -> bool:
        """Return whether a worker was silent for longer than it may be. Removes nothing: a worker with a ttl is removed
        when workers are read, unless signs of life at other daemons are unknown."""
        at_s = self._seen_at_s.get(worker.id)
        if at_s is None:
            return False
        at_s = max(at_s, self._signed_at_s.get(worker.id, at_s))  # while the store is away only this moves on
        return self._clock.mono_s() - at_s > may_be_silent_s(worker)

    @property
    def is_blind(self) -> bool:
        """Whether the store is unavailable, so that nothing is known of workers that other daemons hear from."""
        return self._looked_at_s is not None and self._clock.mono_s() - self._looked_at_s > BLIND_S

    def last_seen_at_ms(self, worker_id: str) -> int:
        """Return when a worker last gave a sign of life, by the wall clock; 0: not known."""
        at_s = self._signed_at_s.get(worker_id)
        return 0 if at_s is None else round(self._clock.wall_ms() - (self._clock.mono_s() - at_s) * 1000)

    # ------------------------------------------------------------ within

    @abstractmethod
    def unregister(self, worker_id: str, why: str = "unregistered") -> bool: ...

    @abstractmethod
    def _back(self, worker_id: str) -> Worker | None:
        """Register again a worker whose registration had expired, and return it. None: it is unknown or was
        unregistered."""

    def _now_s(self) -> float:
        """Return the time (s) by which silence is judged. It stands still once no signs of other daemons came for
        BLIND_S."""
        now_s = self._clock.mono_s()
        return now_s if self._looked_at_s is None else min(now_s, self._looked_at_s + BLIND_S)

    def _note_age(self, worker_id: str, age_ms: int) -> None:
        at_s = self._clock.mono_s() - max(0, age_ms) / 1000
        self._signed_at_s[worker_id] = max(at_s, self._signed_at_s.get(worker_id, at_s))

    def _expire(self) -> None:
        now_s, seen_at_s = self._now_s(), self._seen_at_s
        if now_s <= self._lasting_s:
            return  # called very often, and going through 10,000 workers takes milliseconds
        mortal = [(worker.id, worker.ttl_s) for worker in self._workers if worker.ttl_s is not None]
        for worker_id, ttl_s in mortal:
            if now_s - seen_at_s[worker_id] > ttl_s:
                seen_at_s[worker_id] += ttl_s  # see `_seen_at_s`
                self._remove(worker_id, "expired")
        lasting_s = (seen_at_s[worker_id] + ttl_s for worker_id, ttl_s in mortal if worker_id in self._workers)
        self._lasting_s = min(lasting_s, default=math.inf)

    def _remove(self, worker_id: str, why: str, at_ms: int | None = None) -> bool:
        """Remove a worker. Returns whether it was known. `at_ms`: when it left; None: now."""
        worker = self._workers.pop(worker_id)
        if worker is None:
            return False
        self.departures.note(
            "worker",
            worker_id,
            died=why in SILENT,
            at_ms=at_ms,
            last_seen_at_ms=self.last_seen_at_ms(worker_id),
            called=worker.name,
        )
        self._shared_at_s.pop(worker_id, None)
        self._unreachable_s.pop(worker_id, None)
        self._log.info("workers.removed", worker=worker_id, name=worker.name, why=why)
        return True
