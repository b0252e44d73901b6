"""Numbers of jobs by state, and totals; `lua/shared/counts.lua` keeps them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """Numbers of jobs by state; each job counts in one state. The order is that of `STATES` in counts.lua."""

    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    retrying: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    blocked: int = 0

    @property
    def queued(self) -> int:
        return self.waiting + self.scheduled + self.retrying + self.blocked

    @property
    def jobs(self) -> int:
        return sum(self)


class Totals(NamedTuple):
    """Totals since the store, or the jobtype, was last empty. They only grow; `jqd/service/rates.py` makes rates of
    them.

    The order is that of `TOTALS` in counts.lua."""

    pushed: int = 0
    started: int = 0
    """Number of attempts that began."""
    ended: int = 0
    failed: int = 0
    """How many of the ended jobs failed for good."""


class TypeView(NamedTuple):
    """A jobtype that has jobs, even if all have ended."""

    jobtype: str
    counts: Counts = Counts()
    oldest_ms: int = 0
    """When (ms) the next job became ready; 0: no job is ready."""
    totals: Totals = Totals()


STATES, NUMBERS = len(Counts._fields), len(Counts._fields) + len(Totals._fields)


def decode_counts(row: Sequence[object]) -> tuple[Counts, Totals]:
    """Decode a row of numbers: counts, then totals; None counts as 0. Raises ValueError."""
    numbers = [int(number) if isinstance(number, bytes) else 0 for number in row]
    if len(numbers) != NUMBERS or min(numbers) < 0:
        raise ValueError(f"{len(numbers)} numbers instead of {NUMBERS}, or one below 0")
    return Counts(*numbers[:STATES]), Totals(*numbers[STATES:])


def added(rows: Iterable[tuple[int, ...]]) -> Iterable[int]:
    """Return the sum of several partitions' rows, number by number."""
    return map(sum, zip(*rows, strict=True))
