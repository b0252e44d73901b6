"""Finds the job that crashes its worker, by running suspects alone. Pure: the caller gives the time.

    at work ──connection lost──▶ suspect, handed back ──claimed again──▶ alone at a worker ──it ends──▶ cleared
                                    ▲                                        │
                                    └──────── lost once more ────────────────┤ others ran there, or it was in a group
                                                                             └ nothing else ran: that was an attempt

A broken connection does not show which job broke it: the process may have been stopped, or killed by any of its jobs.
So the first loss costs no job an attempt. A job pays (loses an attempt) only for a loss during which nothing else ran
at its worker. Where other jobs run there all the time, a job that is alone in its request pays from its fourth loss on,
so that no job is tried for ever.

Connections to one host and port that break within half a second are one burst: one process that died. Its jobs are sent
again in groups of an eighth of the burst. A group that ends well is cleared as a whole; one that is lost is cut into
eighths.

A suspect has a worker to itself for a second, and four times as long after each further loss: a job that crashes its
worker does so sooner or later. Then other jobs are sent beside it, so that no long job keeps a worker for itself.

Workers registered at one URL count as one: a restarted process has a new id there, and for a while its old one. Behind
one host and port there may be several workers: paths of one process, or processes behind a gateway. The broken requests
tell which, for a process that dies breaks all its requests and answers nothing more. A suspect normally needs only its
own worker to itself. It needs more if three things are true of its burst: requests to another worker there broke, too;
all requests that were running there broke; and nothing sent later was answered meanwhile.

Even then two processes behind one gateway may have died at once. So after the first such burst a suspect has only its
own worker to itself, while suspects of other workers there wait. If its request breaks those of other workers again,
they are one process, and the suspect gets the whole host and port. Suspects and all other jobs take turns, a second
each.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

SUSPECTS_MAX = 20_000  # the latest that are kept; a forgotten job's next loss counts as its first, which costs nothing
GROUP_PART = 8  # a group is an eighth of the jobs that were lost together
ALONE_S = 1.0  # a suspect has its worker to itself for so long after its first loss: most jobs end by then
ALONE_GROWTH = 4
SETTLE_S = 0.5  # after a loss, until the next suspect is sent: a process that dies closes its connections one by one
EMPTYING_S = 5.0  # at most so long a worker gets no new jobs, so that it becomes empty for a suspect
AGAIN_S = 60.0  # if it still has jobs then, suspects are sent beside them for so long
HELD_S = 1.0  # after so long no further suspect gets the worker; the present one keeps it
RECESS_S = 1.0  # then other jobs get the worker, so one that only shares the gateway loses half of its time
COMPANY_LOSSES = 4  # from this loss on a job alone in its request loses an attempt, even if others ran there


class Extent(IntEnum):
    """How much is reserved for a suspected job while it runs alone: more if workers beside its own broke, too."""

    OWN = 0
    """Only the suspect's own worker."""
    PERHAPS = 1
    """The suspect's own worker. Meanwhile suspects of other workers at this host and port wait."""
    ALL = 2
    """All workers at the suspect's host and port."""


class Suspicion(NamedTuple):
    losses: int
    group: int
    """The most suspected jobs in one request, including this one."""


@dataclass(slots=True)
class Burst:
    """A burst: connections of one host and port that broke within half a second, probably because one process died."""

    begun_s: float = 0.0
    last: int = 0
    """Number of the last request sent before the first connection broke."""
    jobs: int = 0
    """Number of jobs that were in flight over these connections."""
    workers: set[str] = field(default_factory=set)
    """Ids of the workers whose broken requests were running when the first connection broke. A dead process has no
    later ones."""
    spared: set[int] = field(default_factory=set)
    """Numbers of the requests that were running when the first connection broke, and have not broken themselves."""
    answered: bool = False
    """Whether a request that was sent after the first connection broke has been answered."""
    outlived: bool = False
    """Whether a request from before the burst broke after `answered` was set. Then it was not a single process that
    died."""

    @property
    def is_shared(self) -> bool:
        """Whether all signs say that one process died, and that it served several workers."""
        return len(self.workers) > 1 and not self.is_refuted

    @property
    def is_refuted(self) -> bool:
        """Whether a request at this host and port outlived the broken connections, so that it was not one process that
        died."""
        return self.outlived or bool(self.spared)

    def take(self, number: int, worker: str) -> None:
        if number in self.spared:
            self.spared.remove(number)
            self.workers.add(worker)
            self.outlived |= self.answered


class _Loss(NamedTuple):
    losses: int
    most: int | None
    """The most jobs that the request of the job could have; None: any number."""
    burst: Burst
    before: Extent
    """The extent that followed from the losses before this one."""

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
    """Keeps the suspects of a daemon: jobs that were running when their connection broke. Each is to run alone when it
    is sent to a worker next."""

    def __init__(self) -> None:
        self.known: dict[str, _Loss] = {}
        """Job id → its losses. While it is empty, callers skip crash isolation."""

    def lost(self, job_ids: Sequence[str], burst: Burst | None = None) -> None:
        """Make suspects of jobs that were running when their connection broke. `burst`: all connections that broke at
        about the same time."""
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
    """A request of suspected jobs for which a worker is reserved. Requests of the same group may share it."""

    jobs: int
    group: int
    """The most suspected jobs that may run at the same time, including those of this request."""
    until_s: float
    """Until when only suspected jobs of this group are sent there, by the monotonic clock."""


class Isolation:
    """Reserves one worker, or one host and port, for a request of suspected jobs (each may have crashed a worker).

    `entered` counts the jobs of each request when it is sent; the count falls as they end."""

    def __init__(self) -> None:
        self.at_work = 0
        """Number of jobs that were sent there and have not ended."""
        self.waiting = 0
        """Number of requests of suspected jobs that wait until nothing else runs there."""
        self._owners: dict[object, _Owner] = {}
        self._coming: set[object] = set()  # requests of ordinary jobs that are connecting
        self._alone: object | None = None  # the request beside which no other has run since it was sent
        self._held_since_s = float("-inf")  # since when suspects have the worker, apart from pauses below RECESS_S
        self._held_until_s = float("-inf")  # when the latest suspect gave the worker free
        self._recess_until_s = float("-inf")  # until when only other jobs get the worker
        self._emptying_since_s: float | None = None  # since when no new jobs are sent, so that it becomes empty
        self._company_until_s = float("-inf")  # until when suspects are sent beside other jobs
        self._settled_at_s = float("-inf")  # SETTLE_S after the last loss
        self._burst = Burst(float("-inf"))  # the latest burst
        self._there: dict[object, tuple[int, str]] = {}  # request that runs there → its number, its worker
        self._holder = ""  # the worker whose suspects run now, see Extent.PERHAPS
        self._holding_since_s = float("-inf")
        self._holding: dict[object, float] = {}  # request of its suspects → until when suspects of other workers wait
        self._number = 0  # number of the last request sent

    def is_kept(self, now_s: float) -> bool:
        """Return whether no new jobs may be sent to this worker, or host and port, because a suspected job runs alone
        or waits to."""
        return self.wait_s(now_s) > 0 or (bool(self.waiting) and now_s >= self._recess_until_s)

    def admit_or_wait_s(
        self, request: object, losses: int, now_s: float, send_s: float, *, jobs: int = 1, group: int = 1
    ) -> float:
        """Decide whether the request may be sent now. Returns 0 if it may, within the next `send_s`; else the seconds
        after which to ask again.

        `losses`: how often connections broke while its jobs ran; 0: its jobs are not suspected. `jobs`: their number.
        `group`: how many suspected jobs may run at once."""
        wait_s = self.wait_s(now_s)
        if not losses:
            return wait_s
        if (rest_s := max(self._settled_at_s, self._recess_until_s) - now_s) > 0:
            return max(wait_s, rest_s)
        owners = self._owners.values()
        most = min((owner.group for owner in owners), default=0)  # the smallest group limits how many run together
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
        """Reserve the worker for a request of suspected jobs and return 0. If suspected jobs have had it for long,
        reserve nothing, and return for how many seconds other jobs have it first."""
        if not self._owners and now_s - self._held_until_s >= RECESS_S:
            self._held_since_s = now_s
        if now_s - self._held_since_s >= HELD_S:
            self._held_since_s = self._recess_until_s = now_s + RECESS_S
            return RECESS_S
        if not self.at_work and self.wait_s(now_s) <= 0:
            self._owners.clear()  # their requests were not sent in time
        self._owners[request] = owner
        self._emptying_since_s = None
        return 0.0

    def set_out(self, request: object) -> None:
        """Note that a request of ordinary jobs is about to be sent. Until it has ended, suspected jobs wait."""
        self._coming.add(request)

    def entered(self, request: object, jobs: int, losses: int, now_s: float, worker: str = "") -> None:
        self._coming.discard(request)
        # A request sent just after a break may reach the dying process, so it does not count as alone.
        self._alone = None if self.at_work or now_s < self._settled_at_s else request
        self._number += 1
        self._there[request] = self._number, worker
        self.at_work += jobs
        alone_s = ALONE_S * ALONE_GROWTH ** (min(losses, 16) - 1) if losses else 0.0
        if request in self._holding:
            self._holding[request] = now_s + min(alone_s, EMPTYING_S)
        if request in self._owners:
            self._owners[request] = self._owners[request]._replace(jobs=jobs, until_s=now_s + alone_s)
        else:
            self._free(now_s, *self._owners)

    def is_alone(self, request: object) -> bool:
        """Return whether no other request ran at this worker, or host and port, since this one was sent. False if a
        connection had broken just before it was sent."""
        return self._alone is request

    def lost(self, now_s: float, request: object = None) -> Burst:
        """Note that a request's connection broke. Returns the burst: all connections that broke at about the same
        time."""
        self._settled_at_s = now_s + SETTLE_S
        if now_s - self._burst.begun_s >= SETTLE_S:
            self._burst = Burst(now_s, self._number, spared={number for number, _ in self._there.values()})
        self._burst.take(*self._there.get(request, (0, "")))
        return self._burst

    def answered(self, request: object) -> None:
        """Note that a request was answered. If it was sent after the latest burst began, some process at this host and
        port survived the burst."""
        self._burst.answered |= self._there.get(request, (0, ""))[0] > self._burst.last

    def left(self, request: object, now_s: float) -> None:
        self._coming.discard(request)
        self._there.pop(request, None)
        self._holding.pop(request, None)
        self._free(now_s, request)
        if self._alone is request:
            self._alone = None
        if not self.waiting:
            self._emptying_since_s = None  # no suspect waits for it to become empty

    def wait_s(self, now_s: float) -> float:
        return max((owner.until_s - now_s for owner in self._owners.values() if owner.until_s > now_s), default=0.0)

    def others_s(self, worker: str, now_s: float) -> float:
        """Return for how many seconds suspected jobs of this worker must wait for suspected jobs of other workers; 0:
        they need not wait."""
        left_s = max((until_s - now_s for until_s in self._holding.values()), default=0.0)
        if left_s <= 0 or (worker == self._holder and now_s - self._holding_since_s < HELD_S):
            return 0.0
        return min(left_s, HELD_S)

    def hold_others(self, request: object, worker: str, now_s: float, send_s: float) -> None:
        """Note that a request with jobs that may crash their worker is being sent to `worker`. Such jobs of other
        workers on the same host wait until it is answered, or `send_s` seconds are over. `request`: any object that
        stands for the request."""
        if worker != self._holder or all(until_s <= now_s for until_s in self._holding.values()):
            self._holder, self._holding_since_s = worker, now_s
        self._holding[request] = now_s + send_s

    def _free(self, now_s: float, *requests: object) -> None:
        for request in requests:
            if (owner := self._owners.pop(request, None)) is not None:
                self._held_until_s = max(self._held_until_s, min(now_s, owner.until_s))
