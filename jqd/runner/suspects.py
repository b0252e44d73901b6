"""Jobs whose worker went down while it had them, told apart by running them alone. Pure: time is given.

    at work ──connection lost──▶ suspect, back untried ──claimed again──▶ alone at a worker ──it ends──▶ cleared
                                    ▲                                        │
                                    └──────── lost once more ────────────────┤ in company, or in a group
                                                                             └ alone, by itself: that was an attempt

A connection that breaks says nothing of who broke it: the process may have been stopped, or killed by one of the jobs
that shared it, over this request or another. So the first loss costs no job an attempt, and a job pays only for a loss
at which it had the worker to itself. A group of suspects that comes through is cleared in one go; one that is lost is
cut in eighths.

A suspect has a worker to itself for a second, and four times as long after each further loss: what brings a worker down
does so sooner or later. After that others come in beside it, so that no long job keeps a worker for itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

SUSPECTS_MAX = 20_000  # remembered, those lost last; a job that is forgotten begins anew with a loss that costs nothing
GROUP_PART = 8  # a request of suspects holds so small a part of the one that was lost
ALONE_S = 1.0  # a suspect has its worker to itself for so long after its first loss: most jobs end by then
ALONE_GROWTH = 4
SETTLE_S = 0.5  # after a loss, until the next suspect is sent: a process that dies closes its connections one by one
EMPTYING_S = 5.0  # a worker gets nothing new for so long at most, so that it comes to have no other job in hand
AGAIN_S = 60.0  # after it had some all that time, suspects go in company for so long


class Suspicion(NamedTuple):
    """What is held against one job."""

    losses: int
    """Connections lost while it was at work."""
    group: int
    """It is sent with so many others at most, itself counted."""


class Suspects:
    """One for all workers of a daemon: a job that was lost at one is run alone at the next."""

    def __init__(self) -> None:
        self._known: dict[str, Suspicion] = {}

    def lost(self, job_ids: Sequence[str]) -> None:
        """The connection of one request broke, with these jobs at work."""
        group = max(1, len(job_ids) // GROUP_PART)
        for job_id in job_ids:
            before = self._known.pop(job_id, None)
            self._known[job_id] = Suspicion(before.losses + 1 if before else 1, group)
        while len(self._known) > SUSPECTS_MAX:
            del self._known[next(iter(self._known))]

    def cleared(self, job_id: str) -> None:
        """It ended, and the worker stood."""
        self._known.pop(job_id, None)

    def of(self, job_id: str) -> Suspicion | None:
        """None: nothing is held against it."""
        return self._known.get(job_id)


class Solitude:
    """Who has one worker to itself. A request enters when it is sent, and its jobs leave one by one."""

    def __init__(self) -> None:
        self.at_work = 0
        """Jobs sent to the worker that have not stopped."""
        self.waiting = 0
        """Requests of suspects that wait for their turn: the worker is to become empty."""
        self._owner: object | None = None
        self._until_s = float("-inf")
        self._emptying_since_s: float | None = None
        self._company_until_s = float("-inf")
        self._settled_at_s = float("-inf")

    def is_kept(self, now_s: float) -> bool:
        """Whether nothing new is to be handed over: a suspect has the worker to itself, or waits for that."""
        return bool(self.waiting) or self._wait_s(now_s) > 0

    def turn(self, request: object, losses: int, now_s: float, send_s: float) -> float:
        """0: the request may be sent now, within `send_s`. Else seconds after which to ask again, if not sooner.

        `losses`: of its jobs; 0 when they are no suspects.
        """
        wait_s = self._wait_s(now_s)
        if losses:
            wait_s = max(wait_s, self._settled_at_s - now_s)
        if wait_s > 0 or not losses:
            return wait_s
        if not self.at_work:
            self._owner, self._until_s = request, now_s + send_s
            self._emptying_since_s = None
            return 0.0
        if now_s < self._company_until_s:
            return 0.0
        if self._emptying_since_s is None:
            self._emptying_since_s = now_s
        left_s = self._emptying_since_s + EMPTYING_S - now_s
        if left_s <= 0:
            self._emptying_since_s, self._company_until_s = None, now_s + AGAIN_S
        return max(0.0, left_s)

    def entered(self, request: object, jobs: int, losses: int, now_s: float) -> None:
        """It is sent now."""
        self.at_work += jobs
        if self._owner is request:
            self._until_s = now_s + ALONE_S * ALONE_GROWTH ** (min(losses, 16) - 1)
        else:
            self._owner = None

    def is_alone(self, request: object) -> bool:
        """Whether no other request was at work there since it was sent."""
        return self._owner is request

    def lost(self, now_s: float) -> None:
        """A connection broke. What is sent now may go to the dead, on another that nobody has seen break yet."""
        self._settled_at_s = now_s + SETTLE_S

    def left(self, request: object) -> None:
        """The request is over."""
        if self._owner is request:
            self._owner = None

    def _wait_s(self, now_s: float) -> float:
        return max(0.0, self._until_s - now_s) if self._owner is not None else 0.0
