"""Jobs whose worker went down while it had them, told apart by running them alone. Pure: time is given.

    at work ──connection lost──▶ suspect, back untried ──claimed again──▶ alone at a worker ──it ends──▶ cleared
                                    ▲                                        │
                                    └──────── lost once more ────────────────┤ in company, or in a group
                                                                             └ alone, by itself: that was an attempt

A broken connection does not show which job broke it: the process may have been stopped, or killed by one of the jobs
that shared it, over this request or another. So the first loss costs no job an attempt, and a job pays only for a loss
at which it had the worker to itself. Where it never comes to that, because others are at work there all the time, a
request of one job pays from its fourth loss on: nothing runs for ever.

What breaks within half a second at one host and port is one burst: a process that died. Its jobs come again in groups
of an eighth of all that, be they over one request or over many. A group that comes through is cleared in one go; one
that is lost is cut in eighths.

A suspect has a worker to itself for a second, and four times as long after each further loss: what brings a worker down
does so sooner or later. After that others come in beside it, so that no long job keeps a worker for itself.

All that are registered at one URL are one worker here: a process that is started again has a new id there, and its old
one for a while. Behind one host and port there may be many: paths of one process, or all that a gateway leads to. Which
requests broke distinguishes them: a process that dies takes along all that is at work in it, and answers nothing more.
So a
suspect has only its worker to itself, unless its burst broke requests to another worker there, too, that were at work
when it began, spared none of these, and nothing that was sent later was answered meanwhile.

That may be one process, or two broken ones behind one door that met the same moment. So after the first such burst its
suspects have their own workers only, but one worker's at a time. If that breaks others' requests along once more, it is
one process, and they have the whole host and port. Then after a second of suspects, one after the other, all others
have one, however many suspects wait.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

SUSPECTS_MAX = 20_000  # remembered, those lost last; a job that is forgotten begins anew with a loss that costs nothing
GROUP_PART = 8  # so small a part of what was lost together is sent together
ALONE_S = 1.0  # a suspect has its worker to itself for so long after its first loss: most jobs end by then
ALONE_GROWTH = 4
SETTLE_S = 0.5  # after a loss, until the next suspect is sent: a process that dies closes its connections one by one
EMPTYING_S = 5.0  # a worker gets nothing new for so long at most, so that it comes to have no other job in flight
AGAIN_S = 60.0  # after it had some all that time, suspects go in company for so long
HELD_S = 1.0  # suspects take their turns for so long; the one that has it then keeps it
RECESS_S = 1.0  # then it is all others' for so long: who shares no more than a gateway loses half of his time
COMPANY_LOSSES = 4  # from this loss on a job by itself in its request pays, also in company


class Extent(IntEnum):
    """How much went down with a job, as far as is known; so much it needs for itself when it is tried alone."""

    OWN = 0
    """The job's own worker."""
    PERHAPS = 1
    """Perhaps all at its host and port: its worker, while no other one's suspects are at work there."""
    ALL = 2
    """All at its host and port."""


class Suspicion(NamedTuple):
    losses: int
    group: int
    """The most suspects in its request, itself counted."""


@dataclass(slots=True)
class Burst:
    """Connections of one host and port that broke together."""

    begun_s: float = 0.0
    last: int = 0
    """Number of the request that was sent last when it began."""
    jobs: int = 0
    """Number of jobs that were in flight over these connections."""
    workers: set[str] = field(default_factory=set)
    """Whose they were, of those at work when the first broke: what was sent later was not in it when it died."""
    spared: set[int] = field(default_factory=set)
    """Requests that were at work when the first broke, and did not."""
    answered: bool = False
    """Since the first broke, something was sent and answered there."""
    outlived: bool = False
    """And after that another broke, that was at work when the first did: one death does not do both."""

    @property
    def is_shared(self) -> bool:
        """Return whether one process that serves several workers broke."""
        return len(self.workers) > 1 and not self.is_refuted

    @property
    def is_refuted(self) -> bool:
        """Return whether something at that host and port outlived the burst."""
        return self.outlived or bool(self.spared)

    def take(self, number: int, worker: str) -> None:
        if number in self.spared:
            self.spared.remove(number)
            self.workers.add(worker)
            self.outlived |= self.answered


class _Loss(NamedTuple):
    losses: int
    most: int | None
    """So many jobs it was sent with at most; None: with any number."""
    burst: Burst
    before: Extent
    """As the loss before this one says."""

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
    """The suspects of a daemon: a job that was lost at one worker runs alone at the next."""

    def __init__(self) -> None:
        self.known: dict[str, _Loss] = {}
        """Id of a job → its losses. While this is empty, crash isolation is skipped."""

    def lost(self, job_ids: Sequence[str], burst: Burst | None = None) -> None:
        """Note jobs that were at work when their connection broke. `burst`: all connections that broke with it."""
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
    """A request of suspects that the worker is reserved for, with others of its group or alone."""

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
        """Requests of suspects that wait for their turn: the worker is to become empty."""
        self._owners: dict[object, _Owner] = {}  # where there are some, nothing else is at work
        self._coming: set[object] = set()  # no suspects, and connecting: they are at work there in a moment
        self._alone: object | None = None  # the owner that nothing was admitted beside
        self._held_since_s = float("-inf")  # suspects have it, with less than RECESS_S for others between them
        self._held_until_s = float("-inf")  # the last of them had it
        self._recess_until_s = float("-inf")
        self._emptying_since_s: float | None = None
        self._company_until_s = float("-inf")
        self._settled_at_s = float("-inf")
        self._burst = Burst(float("-inf"))
        self._there: dict[object, tuple[int, str]] = {}  # request → its number, its worker
        self._bearer = ""  # the worker whose suspects are at work, see Extent.PERHAPS
        self._borne_since_s = float("-inf")
        self._borne: dict[object, float] = {}  # these, and until when others' are not
        self._number = 0

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
        most = min((owner.group for owner in owners), default=0)  # who has it alone is not joined by a larger group
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
            self._owners.clear()  # who did not set out in time
        self._owners[request] = owner
        self._emptying_since_s = None
        return 0.0

    def set_out(self, request: object) -> None:
        """Note a request of plain jobs that may go out: suspects wait until it was sent and ended."""
        self._coming.add(request)

    def entered(self, request: object, jobs: int, losses: int, now_s: float, worker: str = "") -> None:
        self._coming.discard(request)
        # What goes there while something breaks there may go to the dead, whose path of it had nothing at work.
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
        """Return whether no other request was at work there since this one was sent, and none had just broken then."""
        return self._alone is request

    def lost(self, now_s: float, request: object = None) -> Burst:
        """Note a broken connection. Returns the burst: the connections that broke with it."""
        self._settled_at_s = now_s + SETTLE_S
        if now_s - self._burst.begun_s >= SETTLE_S:
            self._burst = Burst(now_s, self._number, spared={number for number, _ in self._there.values()})
        self._burst.take(*self._there.get(request, (0, "")))
        return self._burst

    def answered(self, request: object) -> None:
        """Note an answer: the host lives. It refutes no burst that began after the request was sent."""
        self._burst.answered |= self._there.get(request, (0, ""))[0] > self._burst.last

    def left(self, request: object, now_s: float) -> None:
        self._coming.discard(request)
        self._there.pop(request, None)
        self._borne.pop(request, None)
        self._free(now_s, request)
        if self._alone is request:
            self._alone = None
        if not self.waiting:
            self._emptying_since_s = None  # nobody waits for that any more

    def wait_s(self, now_s: float) -> float:
        return max((owner.until_s - now_s for owner in self._owners.values() if owner.until_s > now_s), default=0.0)

    def others_s(self, worker: str, now_s: float) -> float:
        """Return the seconds after which to ask again whether other workers' suspects are at work there; 0: none
        are."""
        left_s = max((until_s - now_s for until_s in self._borne.values()), default=0.0)
        if left_s <= 0 or (worker == self._bearer and now_s - self._borne_since_s < HELD_S):
            return 0.0
        return min(left_s, HELD_S)

    def bear(self, request: object, worker: str, now_s: float, send_s: float) -> None:
        """Note that suspects of this worker run at this host and port now."""
        if worker != self._bearer or all(until_s <= now_s for until_s in self._borne.values()):
            self._bearer, self._borne_since_s = worker, now_s
        self._borne[request] = now_s + send_s

    def _free(self, now_s: float, *requests: object) -> None:
        for request in requests:
            if (owner := self._owners.pop(request, None)) is not None:
                self._held_until_s = max(self._held_until_s, min(now_s, owner.until_s))
