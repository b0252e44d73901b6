"""How often open pages are looked at: together they cost a daemon and this process so much a second, however many.

Pages that show the same share their calls. Where 500 show 500 different things, each look costs its calls, and the
pages take turns: each knows when its turn is, in the order in which they asked for one.
"""

import trio

CALLS_A_S = 50  # to daemons: half a millisecond each, 3 % of a core
PAGES_A_S = 200  # brought anew: 0.25 ms each, a twentieth of a core; of 500 pages that show the same each every 2.5 s


class Pacing:
    """The turns of all pages of one process."""

    def __init__(self) -> None:
        self.free_s = 0.0
        """When the next turn may begin."""

    def turn(self, calls: int) -> "Turn":
        """Return the turn of a look that is to make so many calls."""
        return Turn(self, calls)

    async def wait(self, calls: int) -> None:
        """Wait for such a turn, and take it."""
        if (left_s := self.turn(calls).left_s) > 0:
            await trio.sleep(left_s)


class Turn:
    """A place in the row; it is given back by `end` where nothing was made of it."""

    def __init__(self, pace: Pacing, calls: int) -> None:
        self._pace, self._cost_s, now_s = pace, _cost_s(calls), trio.current_time()
        self.due_s = max(now_s, pace.free_s)
        self.wait_s = self.due_s - now_s
        pace.free_s = self.due_s + self._cost_s

    @property
    def left_s(self) -> float:
        return self.due_s - trio.current_time()

    def end(self, calls: int) -> None:
        """Tell how many calls were made."""
        self._pace.free_s += _cost_s(calls) - self._cost_s


def _cost_s(calls: int) -> float:
    return max(1 / PAGES_A_S, calls / CALLS_A_S)
