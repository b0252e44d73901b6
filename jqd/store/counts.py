"""Numbers of jobs by state, and totals, as functions keep them (`lua/shared/counts.lua`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """Numbers of jobs by state, each in one. In the order of `STATES` in Lua."""

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
    """Totals since the store, or the jobtype, was last empty; they only grow: `jqd/service/rates.py` takes differences.

    In the order of `TOTALS` in Lua."""

    pushed: int = 0
    started: int = 0
    """Attempts that were started."""
    ended: int = 0
    failed: int = 0
    """How many of the ended jobs failed for good."""


class TypeView(NamedTuple):
    """A jobtype that has jobs, also if they ended."""

    jobtype: str
    counts: Counts = Counts()
    oldest_ms: int = 0
    """Since when (ms) the next job has been ready; 0 when none is."""
    totals: Totals = Totals()


STATES, NUMBERS = len(Counts._fields), len(Counts._fields) + len(Totals._fields)


def decode_counts(row: Sequence[object]) -> tuple[Counts, Totals]:
    """Counts and totals from a row of numbers; None: 0. Raises ValueError."""
    numbers = [int(number) if isinstance(number, bytes) else 0 for number in row]
    if len(numbers) != NUMBERS or min(numbers) < 0:
        raise ValueError(f"{len(numbers)} numbers instead of {NUMBERS}, or one below 0")
    return Counts(*numbers[:STATES]), Totals(*numbers[STATES:])


def added(rows: Iterable[tuple[int, ...]]) -> Iterable[int]:
    """Return the sums over several partitions, number by number."""
    return map(sum, zip(*rows, strict=True))
