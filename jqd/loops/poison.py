"""When a suspect is claimed: a job that was in the hands of two daemons when they died.

It runs alone, so that no other job dies with it. A daemon that always has long work in hand would never claim it, nor
one whose ended jobs a partition of the store cannot be told; so after a while it claims the suspect in company, and a
death is not blamed on it then. Where there are many suspects, other jobs get most of the time.
"""

from jqd.domain.clock import Clock
from jqd.store import Suspects

EMPTYING_S = 10.0  # so long nothing new is claimed, so that our hand becomes empty: most work is done in that time
TELLING_S = 0.5  # so long what has ended may take to be told to the store: one that is away holds up no other partition
AGAIN_S = 60.0  # so long none follows a wait in vain: waiting costs a seventh of the time at most
OTHERS = 3  # times the time that a suspect took belong to other jobs afterwards


class PoisonGuard:
    """Remembers since when our hand is being emptied, and what suspects cost. Pure but for the clock.

    One for all partitions of the store: jobs of all of them die with us.
    """

    def __init__(self, clock: Clock, alone_s: float = 60.0) -> None:
        """`alone_s`: so long at most a suspect has our hand for itself."""
        self._clock = clock
        self._alone_s = alone_s
        self._since_s: float | None = None
        """Since when nothing new is claimed, so that our hand becomes empty."""
        self._ended_s: float | None = None
        """Since when all in it has ended, meanwhile, and the store is to hear of it."""
        self._taken_s: float | None = None
        """Since when a suspect has our hand for itself."""
        self._again_at_s = 0.0
        self._others_until_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether our hand is to become empty for a suspect, or a suspect has it."""
        return self._since_s is not None or self._taken_s is not None

    def judge(self, *, suspect: bool, empty: bool, working: bool) -> Suspects | None:
        """How suspects are to be taken, or None: take nothing at all now.

        `suspect`: the best job that waits is one. `empty`: we hold nothing. `working`: something is queued or running.
        """
        now_s = self._clock.mono_s()
        if empty and self._taken_s is not None:
            self._others_until_s = now_s + (now_s - self._taken_s) * OTHERS
            self._taken_s = None
        if self._taken_s is not None and now_s - self._taken_s < self._alone_s:
            return None
        if not suspect:
            self._since_s = None  # what is better goes first, and the waiting begins anew
            return Suspects.NONE  # a suspect that came first since the look is claimed when the next look shows it
        if self._taken_s is not None or now_s < self._others_until_s:
            return Suspects.NONE
        if empty:
            self._since_s, self._taken_s = None, now_s
            return Suspects.ALONE
        return self._wait(now_s, working=working)

    def taken(self, count: int) -> None:
        """What came of a suspect that was to have our hand: one job, unless another daemon was quicker."""
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
        is_telling = self._ended_s is None or now_s - self._ended_s < TELLING_S
        if is_telling and now_s - self._since_s < EMPTYING_S:
            return None
        self._since_s, self._again_at_s = None, now_s + AGAIN_S
        return Suspects.COMPANY
