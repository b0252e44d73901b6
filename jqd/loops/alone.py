"""When a job that was in hand at two deaths is taken: by itself, when our hand is empty; or in company after a while.

Its neighbours must not die with it once more, so it runs alone. But whoever is never done with long work would never
take it: then it is taken in company, and a death with it is not laid to it.
"""

import enum

from jqd.clock import Clock
from jqd.store import WaitingType

EMPTYING_S = 10.0  # how long we take nothing new so that our hand may become empty: most work is done in that time
AGAIN_S = 60.0  # after a wait in vain none for so long: a suspect may cost us one part in seven of the time


class Take(enum.Enum):
    """What to do about a jobtype whose next job may be a suspect."""

    ANY = "any"
    """No suspect, or it may be taken by an empty hand: the store sees to that."""
    NOTHING = "nothing"
    """Let the hand become empty first."""
    IN_COMPANY = "in company"


class Alone:
    """Remembers since when we wait. Pure but for the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._again_at_s = 0.0

    def judge(self, row: WaitingType, *, empty: bool) -> Take:
        """What to do about this row; `empty`: we hold nothing."""
        if not row.alone or empty:
            self._since_s = None
            return Take.ANY
        now_s = self._clock.mono_s()
        if self._since_s is None:
            if now_s < self._again_at_s:
                return Take.IN_COMPANY
            self._since_s = now_s
        if now_s - self._since_s < EMPTYING_S:
            return Take.NOTHING
        self._since_s, self._again_at_s = None, now_s + AGAIN_S
        return Take.IN_COMPANY
