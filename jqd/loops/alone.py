"""When a job that was in hand at two deaths is taken: by itself, when our hand is empty; or in company after a while.

Its neighbours must not die with it once more, so it runs alone. But whoever is never done with long work would never
take it: then it is taken in company, and a death with it is not laid to it. And where there are many, the others
get most of the time.
"""

from jqd.store import Suspects, WaitingType
from jqd.words.clock import Clock

EMPTYING_S = 10.0  # how long we take nothing new so that our hand may become empty: most work is done in that time
AGAIN_S = 60.0  # after a wait in vain none for so long: waiting costs one part in seven of the time at most
OTHERS = 3  # parts of the time that belong to other jobs after one that a suspect took


class Alone:
    """Remembers since when we wait, and what suspects cost. Pure but for the clock.

    One for all partitions of the store: jobs of all of them die with us. That of the suspect gives nothing more to a
    hand that has it; the others are held up here.
    """

    def __init__(self, clock: Clock, alone_s: float = 60.0) -> None:
        """`alone_s`: so long a suspect has our hand for itself."""
        self._clock = clock
        self._alone_s = alone_s
        self._partition = 0
        """Whose suspect we wait for, or have."""
        self._priority = 0
        """Of the suspect that we wait for: better jobs do not wait with us."""
        self._since_s: float | None = None
        """We take nothing new, so that our hand becomes empty."""
        self._taken_s: float | None = None
        """A suspect has our hand for itself."""
        self._again_at_s = 0.0
        self._others_until_s = 0.0

    def judge(self, row: WaitingType, *, empty: bool, partition: int = 0) -> Suspects | None:
        """How suspects are to be taken of this row, or None: take nothing at all now. `empty`: we hold nothing."""
        now_s = self._clock.mono_s()
        if empty and self._taken_s is not None:  # over; who of the partitions looks first may say so
            self._others_until_s = now_s + (now_s - self._taken_s) * OTHERS
            self._taken_s = None
        if partition != self._partition and self._is_others(row, now_s):
            return None
        if not row.suspect:
            if partition == self._partition:
                self._since_s = None
            return Suspects.NONE  # one that has come first since the look is taken when that is known
        if partition != self._partition:
            self._partition, self._since_s = partition, None
        if self._taken_s is not None or now_s < self._others_until_s:
            return Suspects.NONE
        if empty:
            self._since_s, self._taken_s = None, now_s
            return Suspects.ALONE
        return self._wait(row, now_s)

    def _is_others(self, row: WaitingType, now_s: float) -> bool:
        """Whether our hand is another partition's suspect's, or is to become empty for one that comes first."""
        if self._since_s is not None and now_s - self._since_s < EMPTYING_S:
            if row.priority >= self._priority:
                return True
            self._since_s = None  # as in one partition: what is better goes first, and the waiting begins anew
        return self._taken_s is not None and now_s - self._taken_s < self._alone_s

    def _wait(self, row: WaitingType, now_s: float) -> Suspects | None:
        if self._since_s is None:
            if now_s < self._again_at_s:
                return Suspects.COMPANY
            self._since_s, self._priority = now_s, row.priority
        if now_s - self._since_s < EMPTYING_S:
            return None
        self._since_s, self._again_at_s = None, now_s + AGAIN_S
        return Suspects.COMPANY
