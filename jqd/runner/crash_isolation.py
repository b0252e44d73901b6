"""Finds the job that crashes its worker, by running suspects alone. Pure: the caller gives the time.

    at work ──connection lost──▶ suspect, handed back ──claimed again──▶ alone at a worker ──it ends──▶ cleared
                                    ▲                                        │
                                    └──────── lost once more ────────────────┤ others ran there, or it was in a group
                                                                             └ nothing else ran: that was an attempt

A broken connection does not show which job broke it: the process may have been stopped, or killed by any of its jobs.
So the first loss costs no job an attempt. A job pays (loses an attempt) only for a loss during which nothing else ran
at its worker. Where other jobs run there all the time, a job that is alone in its request pays from its fourth loss on,
so that no job is tried for ever.

Connections to one worker that break within half a second are one burst: one process that died. Its jobs are sent again
in groups of an eighth of the burst. A group that ends well is cleared as a whole; one that is lost is cut into
eighths.

A suspect has a worker to itself for a second, and four times as long after each further loss: a job that crashes its
worker does so sooner or later. Then other jobs are sent beside it, so that no long job keeps a worker for itself.
Suspects and all other jobs take turns, a second each.

Workers registered at one URL count as one: a restarted process has a new id there, and for a while its old one. Several
URLs of one host and port may be paths of one process, or processes behind a gateway. Nobody knows which. So a suspect
has only its own URL to itself, but pays only if nothing else ran at the whole host and port. Suspects of several URLs
that were lost a second time take turns, so that a job does not pay for a killer that was sent in the same moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SUSPECTS_MAX = 20_000  # the latest that are kept; a forgotten job's next loss counts as its first, which costs nothing
GROUP_PART = 8  # a group is an eighth of the jobs that were lost together
ALONE_S = 1.0  # a suspect has its worker to itself for so long after its first loss: most jobs end by then
ALONE_GROWTH = 4
SETTLE_S = 0.5  # after a loss, until the next suspect is sent: a process that dies closes its connections one by one
EMPTYING_S = 5.0  # at most so long a worker gets no new jobs, so that it becomes empty for a suspect
AGAIN_S = 60.0  # if it still has jobs then, suspects are sent beside them for so long
HELD_S = 1.0  # after so long no further suspect gets the worker; the present one keeps it
RECESS_S = 1.0  # then other jobs get the worker, so suspects take at most half of its time
TURN_LOSSES = 2  # from this loss on suspects of several URLs of one host and port take turns
TURN_S = 10.0  # at most so long suspects of other URLs wait for those of one: EMPTYING_S, and as long alone
COMPANY_LOSSES = 4  # from this loss on a job alone in its request loses an attempt, even if others ran there


class Suspicion(NamedTuple):
    losses: int
    group: int
    """The most suspected jobs in one request, including this one."""


@dataclass(slots=True)
class Burst:
    """Connections of one worker that broke within half a second, probably because one process died."""

    begun_s: float = 0.0
    jobs: int = 0
    """Number of jobs that were in flight over these connections."""


class _Loss(NamedTuple):
    losses: int
    most: int | None
    """The most jobs that the request of the job could have; None: any number."""
    burst: Burst

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
            self.known[job_id] = _Loss(before.losses + 1, before.group, burst) if before else _Loss(1, None, burst)
        while len(self.known) > SUSPECTS_MAX:
            del self.known[next(iter(self.known))]

    def cleared(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.known.pop(job_id, None)

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
    """Reserves one worker for a request of suspected jobs (each may have crashed a worker).

    `entered` counts the jobs of each request when it is sent; the count falls as they end."""

    def __init__(self) -> None:
        self.at_work = 0
        """Number of jobs that were sent there and have not ended."""
        self.waiting = 0
        """Number of requests of suspected jobs that wait until nothing else runs there."""
        self._owners: dict[object, _Owner] = {}
        self._held_since_s = float("-inf")  # since when suspects have the worker, apart from pauses below RECESS_S
        self._held_until_s = float("-inf")  # when the latest suspect gave the worker free
        self._recess_until_s = float("-inf")  # until when only other jobs get the worker
        self._emptying_since_s: float | None = None  # since when no new jobs are sent, so that it becomes empty
        self._company_until_s = float("-inf")  # until when suspects are sent beside other jobs
        self.settled_at_s = float("-inf")
        """SETTLE_S after the last loss."""
        self._burst = Burst(float("-inf"))  # the latest burst

    def is_kept(self, now_s: float) -> bool:
        """Return whether no new jobs may be sent to this worker, because a suspected job runs alone or waits to."""
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
        if (rest_s := max(self.settled_at_s, self._recess_until_s) - now_s) > 0:
            return max(wait_s, rest_s)
        owners = self._owners.values()
        most = min((owner.group for owner in owners), default=0)  # the smallest group limits how many run together
        joins = jobs + sum(owner.jobs for owner in owners) <= min(most, group)
        if wait_s > 0 and not joins:
            return wait_s
        if joins or not self.at_work:
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

    def entered(self, request: object, jobs: int, losses: int, now_s: float) -> None:
        self.at_work += jobs
        if request in self._owners:
            alone_s = ALONE_S * ALONE_GROWTH ** (min(losses, 16) - 1) if losses else 0.0
            self._owners[request] = self._owners[request]._replace(jobs=jobs, until_s=now_s + alone_s)
        else:
            self._free(now_s, *self._owners)

    def lost(self, now_s: float) -> Burst:
        """Note that a request's connection broke. Returns the burst: all connections that broke at about the same
        time."""
        self.settled_at_s = now_s + SETTLE_S
        if now_s - self._burst.begun_s >= SETTLE_S:
            self._burst = Burst(now_s)
        return self._burst

    def left(self, request: object, now_s: float) -> None:
        self._free(now_s, request)
        if not self.waiting:
            self._emptying_since_s = None  # no suspect waits for it to become empty

    def wait_s(self, now_s: float) -> float:
        return max((owner.until_s - now_s for owner in self._owners.values() if owner.until_s > now_s), default=0.0)

    def _free(self, now_s: float, *requests: object) -> None:
        for request in requests:
            if (owner := self._owners.pop(request, None)) is not None:
                self._held_until_s = max(self._held_until_s, min(now_s, owner.until_s))
