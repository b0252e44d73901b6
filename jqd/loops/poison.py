"""Decides when to claim a suspect: a job that was in flight at two daemons when they died.

A suspect runs alone, so that no other job dies with it. To get there, this daemon claims nothing until it has no jobs.
If that takes longer than EMPTYING_S, the suspect is claimed beside other jobs, and a death then does not count against
it. Where there are many suspects, other jobs get most of the time."""

from jqd.domain.clock import Clock
from jqd.store import Suspects

EMPTYING_S = 10.0  # how long nothing new is claimed so that the daemon becomes empty: most jobs end in that time
SETTLING_S = 0.5  # how long outcomes may take to reach the store: a partition that is away must not hold up the others
AGAIN_S = 60.0  # after a wait in vain: waiting costs a seventh of the time at most
OTHERS = 3  # times as long as a suspect ran, only other jobs run afterwards


class PoisonGuard:
    """Decides how this daemon claims suspects (jobs that were in flight at two daemons when they died). One guard
    serves all partitions, as a dying daemon drops jobs of all of them."""

    def __init__(self, clock: Clock, alone_s: float = 60.0) -> None:
        """`alone_s`: for how many seconds at most a suspect runs alone."""
        self._clock = clock
        self._alone_s = alone_s
        self._since_s: float | None = None
        """Since when no new job is claimed, to empty this daemon; None: jobs are claimed."""
        self._ended_s: float | None = None
        """Since when no job is queued or running, and only outcomes have yet to reach the store."""
        self._taken_s: float | None = None
        """Since when a suspect runs alone; None: none does."""
        self._again_at_s = 0.0
        self._others_until_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether this daemon has stopped claiming so that a suspect can run alone, or a suspect runs alone."""
        return self._since_s is not None or self._taken_s is not None

    def judge(self, *, suspect: bool, empty: bool, working: bool) -> Suspects | None:
        """Return how to treat suspects in the next claim; None: claim nothing at all.

        `suspect`: the best waiting job is a suspect. `empty`: no job is in flight. `working`: a job is queued or
        running."""
        now_s = self._clock.mono_s()
        if empty and self._taken_s is not None:
            self._others_until_s = now_s + (now_s - self._taken_s) * OTHERS
            self._taken_s = None
        if self._taken_s is not None and now_s - self._taken_s < self._alone_s:
            return None
        if not suspect:
            self._since_s = None  # a better job goes first, and waiting starts over
            return Suspects.NONE  # a suspect that came since is claimed after the next look
        if self._taken_s is not None or now_s < self._others_until_s:
            return Suspects.NONE
        if empty:
            self._since_s, self._taken_s = None, now_s
            return Suspects.ALONE
        return self._wait(now_s, working=working)

    def taken(self, count: int) -> None:
        """Note how many jobs the claim of a suspect brought: one, or none if another daemon was quicker."""
        if count != 1:
            self._taken_s = None

    def _wait(self, now_s: float, *, working: bool) -> Suspects | None:
        if self._since_s is None:
            if now_s < self._again_at_s:
                return Suspects.COMPANY
            self._since_s, self._ended_s = now_s, None
        if working:
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = now_s
        is_settling = self._ended_s is None or now_s - self._ended_s < SETTLING_S
        if is_settling and now_s - self._since_s < EMPTYING_S:
            return None
        self._since_s, self._again_at_s = None, now_s + AGAIN_S
        return Suspects.COMPANY
