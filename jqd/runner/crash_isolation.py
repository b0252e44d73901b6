"""Finds the job that takes its worker down, by running suspects alone. Pure: time is given.

    at work ──connection lost──▶ suspect, back untried ──claimed again──▶ alone at a worker ──it ends──▶ cleared
                                    ▲                                        │
                                    └──────── lost once more ────────────────┤ in company, or in a group
                                                                             └ alone, by itself: that was an attempt

A broken connection does not show which job broke it: the process may have been stopped, or killed by any of its jobs.
So the first loss costs no job an attempt, and a job pays only for a loss at which it had the worker to itself. Where
others are at work all the time, a request of one job pays from its fourth loss on: nothing runs for ever.

Connections to one host and port that break within half a second are one burst: one process that died. Its jobs are sent
again in groups of an eighth of the burst. A group that ends well is cleared as a whole; one that is lost is cut into
eighths.

A suspect has a worker to itself for a second, and four times as long after each further loss: a job that crashes its
worker does so sooner or later. Then other jobs are sent beside it, so that no long job keeps a worker for itself.

Workers registered at one URL count as one: a restarted process has a new id there, and for a while its old one. Behind
one host and port there may be several workers: paths of one process, or all that a gateway leads to. The broken
requests tell which, for a process that dies breaks all its requests and answers nothing more. So a suspect needs only
its own worker to itself, unless its burst broke requests to another worker there that were at work when it began,
spared none of these, and nothing that was sent later was answered meanwhile.

Even then two processes behind one gateway may have died at once. So after the first such burst a suspect has only its
own worker, while suspects of other workers there wait. If it breaks others' requests again, it is one process, and a
suspect has the whole host and port. Each second of suspects is followed by one of all other jobs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

SUSPECTS_MAX = 20_000  # remembered: of more, those lost last; a forgotten job begins with a loss that costs nothing
GROUP_PART = 8  # a group is this part of the jobs that were lost together
ALONE_S = 1.0  # a suspect has its worker to itself for so long after its first loss: most jobs end by then
ALONE_GROWTH = 4
SETTLE_S = 0.5  # after a loss, until the next suspect is sent: a process that dies closes its connections one by one
EMPTYING_S = 5.0  # for so long, at most, a worker gets nothing new, so that a suspect finds it without other jobs
AGAIN_S = 60.0  # if it still has some then, suspects are sent beside them for so long
HELD_S = 1.0  # suspects take turns for so long; the one that has it then keeps it
RECESS_S = 1.0  # then all other jobs have the worker: a worker that only shares the gateway loses half of its time
COMPANY_LOSSES = 4  # from this loss on a job by itself in its request pays, even if other jobs were at work


class Extent(IntEnum):
    """What a suspect has for itself when it is tried alone: what went down with it, as far as is known."""

    OWN = 0
    """The job's own worker."""
    PERHAPS = 1
    """Perhaps all at its host and port: it has its worker, while suspects of other workers there wait."""
    ALL = 2
    """All at its host and port."""


class Suspicion(NamedTuple):
    losses: int
    group: int
    """How many suspects its request may have, itself counted."""


@dataclass(slots=True)
class Burst:
    """Connections of one host and port that broke together."""

    begun_s: float = 0.0
    last: int = 0
    """Number of the last request sent before the first connection broke."""
    jobs: int = 0
    """Number of jobs that were in flight over these connections."""
    workers: set[str] = field(default_factory=set)
    """Workers of the broken requests that were at work when the first broke: the dead process had no later ones."""
    spared: set[int] = field(default_factory=set)
    """Numbers of the requests that were at work when the first broke, and have not broken."""
    answered: bool = False
    """Whether a request that was sent after the first broke was answered."""
    outlived: bool = False
    """Whether, after such an answer, one more of the older requests broke: then not one process died."""

    @property
    def is_shared(self) -> bool:
        """Whether one process that serves several workers broke."""
        return len(self.workers) > 1 and not self.is_refuted

    @property
    def is_refuted(self) -> bool:
        """Whether something at that host and port outlived the burst."""
        return self.outlived or bool(self.spared)

    def take(self, number: int, worker: str) -> None:
        if number in self.spared:
            self.spared.remove(number)
            self.workers.add(worker)
            self.outlived |= self.answered


class _Loss(NamedTuple):
    losses: int
    most: int | None
    """How many jobs its request could have; None: any number."""
    burst: Burst
    before: Extent
    """The extent by the loss before this one."""

    @property
    def extent(self) -> Extent:
        if self.burst.is_refuted:
            return Extent.OWN
        return Extent(min(self.before + self.burst.is_shared, Extent.ALL))

    @property
    def group(self) -> int:
        jobs = self.burst.jobs if self.most is None else min(self.most, self.burst.jobs)
        return max(1, jobs // GROUP_PART)


class CrashIsolation:
    """The suspects of a daemon: jobs whose connection broke, which run alone at the next worker."""

    def __init__(self) -> None:
        self.known: dict[str, _Loss] = {}
        """Id of a job → its losses. While this is empty, crash isolation is skipped."""

    def lost(self, job_ids: Sequence[str], burst: Burst | None = None) -> None:
        """Make suspects of jobs whose connection broke. `burst`: all connections that broke with it."""
        burst = burst or Burst()
        burst.jobs += len(job_ids)
        for job_id in job_ids:
            before = self.known.pop(job_id, None)
            most = before.group if before else None
            extent = before.extent if before else Extent.OWN
            self.known[job_id] = _Loss(before.losses + 1 if before else 1, most, burst, extent)
        while len(self.known) > SUSPECTS_MAX:
            del self.known[next(iter(self.known))]

    def cleared(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.known.pop(job_id, None)

    def extent(self, job_ids: Collection[str]) -> Extent:
        return max((self.known[job_id].extent for job_id in job_ids if job_id in self.known), default=Extent.OWN)

    def of(self, job_id: str) -> Suspicion | None:
        loss = self.known.get(job_id)
        return Suspicion(loss.losses, loss.group) if loss else None


class _Owner(NamedTuple):
    """A request of suspects that the worker is reserved for, alone or with others of its group."""

    jobs: int
    group: int
    """How many suspects may run at the same time, itself counted."""
    until_s: float
    """Until when only its group is sent there, by the monotonic clock."""


class Isolation:
    """Reserves one worker, or one host and port, for a request of suspects.

    A request enters when it is sent; its jobs leave one by one.
    """

    def __init__(self) -> None:
        self.at_work = 0
        """Jobs sent to the worker that have not stopped."""
        self.waiting = 0
        """Number of suspects' requests that wait until nothing else is at work there."""
        self._owners: dict[object, _Owner] = {}
        self._coming: set[object] = set()  # requests without suspects that are connecting
        self._alone: object | None = None  # the request that has been the only one at work since it was sent
        self._held_since_s = float("-inf")  # since when suspects have it, with pauses below RECESS_S
        self._held_until_s = float("-inf")  # until when the last of them had it
        self._recess_until_s = float("-inf")  # until when it is for other jobs
        self._emptying_since_s: float | None = None  # since when nothing new is sent, so that it becomes empty
        self._company_until_s = float("-inf")  # until when suspects are sent beside other jobs
        self._settled_at_s = float("-inf")  # SETTLE_S after the last loss
        self._burst = Burst(float("-inf"))  # the latest
        self._there: dict[object, tuple[int, str]] = {}  # request at work → its number, its worker
        self._bearer = ""  # the worker whose suspects are at work, see Extent.PERHAPS
        self._borne_since_s = float("-inf")
        self._borne: dict[object, float] = {}  # its suspects' requests → until when those of other workers wait
        self._number = 0  # of the last request sent

    def is_kept(self, now_s: float) -> bool:
        """Return whether nothing new may be sent: a suspect runs alone there, or waits to."""
        return self.wait_s(now_s) > 0 or (bool(self.waiting) and now_s >= self._recess_until_s)

    def turn(
        self, request: object, losses: int, now_s: float, send_s: float, *, jobs: int = 1, group: int = 1
    ) -> float:
        """Return 0 when the request may be sent now, within `send_s`; else the seconds after which to ask again.

        `losses`: how often its `jobs` were lost; 0: they are no suspects. `group`: how many suspects may run at once.
        """
        wait_s = self.wait_s(now_s)
        if not losses:
            return wait_s
        if (rest_s := max(self._settled_at_s, self._recess_until_s) - now_s) > 0:
            return max(wait_s, rest_s)
        owners = self._owners.values()
        most = min((owner.group for owner in owners), default=0)  # the smallest group bounds how many run together
        joins = jobs + sum(owner.jobs for owner in owners) <= min(most, group)
        if wait_s > 0 and not joins:
            return wait_s
        if joins or not (self.at_work or self._coming):
            return self._own(request, _Owner(jobs, group, now_s + send_s), now_s)
        if now_s < self._company_until_s:
            return 0.0
        if self._emptying_since_s is None:
            self._emptying_since_s = now_s
        left_s = self._emptying_since_s + EMPTYING_S - now_s
        if left_s <= 0:
            self._emptying_since_s, self._company_until_s = None, now_s + AGAIN_S
        return max(0.0, left_s)

    def _own(self, request: object, owner: _Owner, now_s: float) -> float:
        """Reserve the worker for this request, unless suspects have had it for long enough."""
        if not self._owners and now_s - self._held_until_s >= RECESS_S:
            self._held_since_s = now_s
        if now_s - self._held_since_s >= HELD_S:
            self._held_since_s = self._recess_until_s = now_s + RECESS_S
            return RECESS_S
        if not self.at_work and self.wait_s(now_s) <= 0:
            self._owners.clear()  # they were not sent in time
        self._owners[request] = owner
        self._emptying_since_s = None
        return 0.0

    def set_out(self, request: object) -> None:
        """Note that a request without suspects is about to be sent: suspects wait until it has ended."""
        self._coming.add(request)

    def entered(self, request: object, jobs: int, losses: int, now_s: float, worker: str = "") -> None:
        self._coming.discard(request)
        # A request sent just after a break may reach the dying process, so it does not count as alone.
        self._alone = None if self.at_work or now_s < self._settled_at_s else request
        self._number += 1
        self._there[request] = self._number, worker
        self.at_work += jobs
        alone_s = ALONE_S * ALONE_GROWTH ** (min(losses, 16) - 1) if losses else 0.0
        if request in self._borne:
            self._borne[request] = now_s + min(alone_s, EMPTYING_S)
        if request in self._owners:
            self._owners[request] = self._owners[request]._replace(jobs=jobs, until_s=now_s + alone_s)
        else:
            self._free(now_s, *self._owners)

    def is_alone(self, request: object) -> bool:
        """Return whether this request was the only one at work since it was sent, and none had just broken then."""
        return self._alone is request

    def lost(self, now_s: float, request: object = None) -> Burst:
        """Note a broken connection. Returns the burst: the connections that broke with it."""
        self._settled_at_s = now_s + SETTLE_S
        if now_s - self._burst.begun_s >= SETTLE_S:
            self._burst = Burst(now_s, self._number, spared={number for number, _ in self._there.values()})
        self._burst.take(*self._there.get(request, (0, "")))
        return self._burst

    def answered(self, request: object) -> None:
        """Note that a request was answered. It tells nothing of a burst that began after the request was sent."""
        self._burst.answered |= self._there.get(request, (0, ""))[0] > self._burst.last

    def left(self, request: object, now_s: float) -> None:
        self._coming.discard(request)
        self._there.pop(request, None)
        self._borne.pop(request, None)
        self._free(now_s, request)
        if self._alone is request:
            self._alone = None
        if not self.waiting:
            self._emptying_since_s = None  # no suspect waits for it to become empty

    def wait_s(self, now_s: float) -> float:
        return max((owner.until_s - now_s for owner in self._owners.values() if owner.until_s > now_s), default=0.0)

    def others_s(self, worker: str, now_s: float) -> float:
        """Return for how many seconds a suspect of this worker has to wait for those of other workers; 0: not at
        all."""
        left_s = max((until_s - now_s for until_s in self._borne.values()), default=0.0)
        if left_s <= 0 or (worker == self._bearer and now_s - self._borne_since_s < HELD_S):
            return 0.0
        return min(left_s, HELD_S)

    def bear(self, request: object, worker: str, now_s: float, send_s: float) -> None:
        """Note that a request of this worker's suspects is sent to this host and port now."""
        if worker != self._bearer or all(until_s <= now_s for until_s in self._borne.values()):
            self._bearer, self._borne_since_s = worker, now_s
        self._borne[request] = now_s + send_s

    def _free(self, now_s: float, *requests: object) -> None:
        for request in requests:
            if (owner := self._owners.pop(request, None)) is not None:
                self._held_until_s = max(self._held_until_s, min(now_s, owner.until_s))
