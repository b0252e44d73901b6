"""When a job that was in hand at two deaths is taken: by itself, when our hand is empty; or in company after a while.

Its neighbours must not die with it once more, so it runs alone. But whoever is never done with long work would never
take it: then it is taken in company, and a death with it is not laid to it. And where there are many, the others
get most of the time.
"""

from jqd.store import Suspects
from jqd.words.clock import Clock

EMPTYING_S = 10.0  # how long we take nothing new so that our hand may become empty: most work is done in that time
AGAIN_S = 60.0  # after a wait in vain none for so long: waiting costs one part in seven of the time at most
OTHERS = 3  # parts of the time that belong to other jobs after one that a suspect took


class Alone:
    """Remembers since when we wait, and what suspects cost. Pure but for the clock.

    One for all partitions of the store: jobs of all of them die with us.
    """

    def __init__(self, clock: Clock, alone_s: float = 60.0) -> None:
        """`alone_s`: so long a suspect has our hand for itself."""
        self._clock = clock
        self._alone_s = alone_s
        self._since_s: float | None = None
        """We take nothing new, so that our hand becomes empty."""
        self._taken_s: float | None = None
        """A suspect has our hand for itself."""
        self._again_at_s = 0.0
        self._others_until_s = 0.0

    def judge(self, *, suspect: bool, empty: bool) -> Suspects | None:
        """How suspects are to be taken, or None: take nothing at all now.

        `suspect`: the best job that waits is one. `empty`: we hold nothing.
        """
        now_s = self._clock.mono_s()
        if empty and self._taken_s is not None:
            self._others_until_s = now_s + (now_s - self._taken_s) * OTHERS
            self._taken_s = None
        if self._taken_s is not None and now_s - self._taken_s < self._alone_s:
            return None
        if not suspect:
            self._since_s = None  # what is better goes first, and the waiting begins anew
            return Suspects.NONE  # one that has come first since the look is taken when that is known
        if self._taken_s is not None or now_s < self._others_until_s:
            return Suspects.NONE
        if empty:
            self._since_s, self._taken_s = None, now_s
            return Suspects.ALONE
        return self._wait(now_s)

    def taken(self, count: int) -> None:
        """What came of a suspect that was to have our hand: one job, unless another daemon was quicker."""
        if count != 1:
            self._taken_s = None

    def _wait(self, now_s: float) -> Suspects | None:
        if self._since_s is None:
            if now_s < self._again_at_s:
                return Suspects.COMPANY
            self._since_s = now_s
        if now_s - self._since_s < EMPTYING_S:
            return None
        self._since_s, self._again_at_s = None, now_s + AGAIN_S
        return Suspects.COMPANY
