"""How many jobs of each jobtype ended here in the last minute."""

from collections import Counter, deque
from collections.abc import Iterable

from jqd.words.clock import Clock

SPAN_S = 60.0  # what a rate looks back on
SLICE_S = 5.0  # how finely
JOBTYPES_MAX = 10_000  # counted in one slice; there may be more, and their rate is then too low


class Rates:
    """Counts by slices of time; old slices are dropped whole."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.mono_s()
        self._slices: deque[tuple[float, Counter[str]]] = deque()

    def note(self, jobtypes: Iterable[str]) -> None:
        """A job of each of these ended."""
        now_s = self._clock.mono_s()
        if not self._slices or now_s - self._slices[-1][0] >= SLICE_S:
            self._forget(now_s)
            self._slices.append((now_s, Counter()))
        counts = self._slices[-1][1]
        if len(counts) < JOBTYPES_MAX:
            counts.update(jobtypes)

    def per_s(self, jobtype: str) -> float:
        """Jobs a second, over the last minute or since the start."""
        now_s = self._clock.mono_s()
        self._forget(now_s)
        span_s = max(1.0, min(SPAN_S, now_s - self._began_s))
        return sum(counts[jobtype] for _, counts in self._slices) / span_s

    def _forget(self, now_s: float) -> None:
        while self._slices and now_s - self._slices[0][0] > SPAN_S:
            self._slices.popleft()
