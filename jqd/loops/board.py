"""What waits in each partition of the store, as last looked at: the best priority goes first over all of them.

Each partition has a dispatcher of its own, so that one that is away holds up nobody else. Before it claims it looks
here: where a better job that may run waits in another partition it leaves the workers to that one. So it has to know
what the others saw of late. It waits a moment for one that has not looked for a while, and passes over one in trouble.
"""

from collections.abc import Callable, Sequence

import trio

from jqd.store import WaitingType
from jqd.words.clock import Clock
from jqd.words.job import PRIORITY_MAX

RECENT_S = 0.1  # a look may be so old: an idle dispatcher looks twice as often
MOMENT_S = 0.05  # waited for a newer one, which is on its way when a slot has just become free
TROUBLE_S = 0.5  # a dispatcher whose calls take so long holds up no others


class _Place:
    """What is known of one partition's dispatcher."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.rows: Sequence[WaitingType] = ()
        self.is_claiming = False
        """False: it may not claim, or cannot reach its store."""
        self.looked_at_s = 0.0
        self.busy_since_s: float | None = None

    @property
    def best(self) -> int:
        return min((row.priority for row in self.rows), default=PRIORITY_MAX)


class Board:
    """The last looks. One for all dispatchers of a daemon."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[int, _Place] = {}
        self._changed = trio.Event()

    def join(self, partition: int, wake: Callable[[], None]) -> None:
        """`wake` is called when another partition has nothing as good as before."""
        self._places[partition] = _Place(wake)

    def begin(self, partition: int) -> None:
        """Its dispatcher asks its store something."""
        place = self._places[partition]
        place.is_claiming, place.busy_since_s = True, self._clock.mono_s()

    def put(self, partition: int, rows: Sequence[WaitingType]) -> None:
        """It looked, or knows better by now what is left."""
        place = self._places[partition]
        place.looked_at_s = self._clock.mono_s()
        self._show(place, rows)

    def rest(self, partition: int) -> None:
        """It has asked all it wanted."""
        self._places[partition].busy_since_s = None

    def leave(self, partition: int) -> None:
        """It may not claim, or cannot: until its next look nothing of it holds up others."""
        place = self._places[partition]
        place.is_claiming, place.busy_since_s = False, None
        self._show(place, ())

    async def wait_recent(self, partition: int) -> None:
        """Return when all others have looked of late, or after a moment."""
        with trio.move_on_after(MOMENT_S):
            while not all(self._clock.mono_s() - place.looked_at_s <= RECENT_S for place in self._others(partition)):
                await self._changed.wait()

    def bound(self, partition: int, may_run: Callable[[WaitingType], bool]) -> int:
        """The priority of the best job that may run and waits in another partition; PRIORITY_MAX when none does."""
        rows = (row for place in self._others(partition) for row in place.rows)
        for row in sorted(rows, key=lambda row: row.priority):
            if row.waiting and may_run(row):
                return row.priority
        return PRIORITY_MAX

    def _others(self, partition: int) -> list[_Place]:
        """Those that count."""
        oldest_s = self._clock.mono_s() - TROUBLE_S
        return [
            place
            for number, place in self._places.items()
            if number != partition
            and place.is_claiming
            and (place.busy_since_s is None or place.busy_since_s >= oldest_s)
        ]

    def _show(self, place: _Place, rows: Sequence[WaitingType]) -> None:
        before, place.rows = place.best, rows
        if len(self._places) == 1:
            return
        if place.best > before:
            for other in self._places.values():
                if other is not place:
                    other.wake()
        self._changed.set()
        self._changed = trio.Event()
