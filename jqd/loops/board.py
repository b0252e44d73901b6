"""What waits in each partition of the store, as last looked at: the best priority goes first over all of them.

Each partition has a dispatcher of its own, so that one that is away holds up nobody else. Before it claims it looks
here: where a better job that may run waits in another partition it leaves the workers to that one.
"""

from collections.abc import Callable, Sequence

from jqd.clock import Clock
from jqd.job import PRIORITY_MAX
from jqd.store import WaitingType

FRESH_S = 0.5  # a partition that was not looked at for so long is in trouble, and its jobs hold up no others


class Board:
    """The last looks. One for all dispatchers of a daemon."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[int, tuple[float, Sequence[WaitingType]]] = {}
        self._wakes: dict[int, Callable[[], None]] = {}

    def join(self, partition: int, wake: Callable[[], None]) -> None:
        """`wake` is called when another partition has nothing as good as before."""
        self._wakes[partition] = wake

    def put(self, partition: int, rows: Sequence[WaitingType]) -> None:
        """A look at a partition; no rows: nothing of it may hold up others."""
        if len(self._wakes) == 1:
            return
        _, before = self._looks.get(partition, (0.0, ()))
        self._looks[partition] = self._clock.mono_s(), rows
        if _best(rows) > _best(before):
            for other, wake in self._wakes.items():
                if other != partition:
                    wake()

    def bound(self, partition: int, may_run: Callable[[WaitingType], bool]) -> int:
        """The priority of the best job that may run and waits in another partition; PRIORITY_MAX when none does."""
        oldest_s = self._clock.mono_s() - FRESH_S
        rows = (
            row
            for other, (looked_at_s, looked) in self._looks.items()
            if other != partition and looked_at_s >= oldest_s
            for row in looked
        )
        for row in sorted(rows, key=lambda row: row.priority):
            if row.waiting and may_run(row):
                return row.priority
        return PRIORITY_MAX


def _best(rows: Sequence[WaitingType]) -> int:
    return min((row.priority for row in rows), default=PRIORITY_MAX)
