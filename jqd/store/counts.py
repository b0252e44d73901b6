"""Numbers of jobs by state, from rows that functions keep (`lua/shared/counts.lua`)."""

from collections.abc import Iterable
from typing import NamedTuple

MINUTE_MS = 60_000
NUMBERS = 17  # of a row; without jobs that wait for parents, as older rows are, one less
STATES = 8  # of `Counts`


class Counts(NamedTuple):
    """Numbers of jobs by state, each in one; and rates over the last minute."""

    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    retrying: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    blocked: int = 0
    pushed_a_minute: float = 0.0
    started_a_minute: float = 0.0
    """Attempts."""
    ended_a_minute: float = 0.0
    failed_a_minute: float = 0.0
    """Of those that ended."""

    @property
    def numbers(self) -> "Counts":
        """Return the counts without the rates."""
        return Counts(*map(int, self[:STATES]))

    @property
    def queued(self) -> int:
        return self.waiting + self.scheduled + self.retrying + self.blocked

    @property
    def jobs(self) -> int:
        return int(sum(self[:STATES]))


class TypeView(NamedTuple):
    """A jobtype that has jobs, also if they ended."""

    jobtype: str
    counts: Counts = Counts()
    oldest_ms: int = 0
    """Since when the job that is next could have begun; 0 when none is ready."""


def decode_counts(row: bytes, now_ms: int) -> Counts:
    """Counts from a row, "" for none. Raises ValueError.

    Rates are kept by whole minutes: of the minute before the present one the part counts that lies in the last sixty
    seconds."""
    if not row:
        return Counts()
    numbers = [int(number) for number in row.split()]
    if len(numbers) == NUMBERS - 1:
        numbers.append(0)
    if len(numbers) != NUMBERS or min(numbers) < 0:
        raise ValueError(f"{len(numbers)} numbers instead of {NUMBERS}, or one below 0")
    minute, present, before = numbers[7], numbers[8:12], numbers[12:16]
    past = now_ms // MINUTE_MS - minute
    if past:
        before = present if past == 1 else [0] * 4
        present = [0] * 4
    part = 1 - now_ms % MINUTE_MS / MINUTE_MS
    rates = (round(new + old * part, 3) for new, old in zip(present, before, strict=True))
    return Counts._make((*numbers[:7], numbers[16], *rates))


def added(all_of_them: Iterable[Counts]) -> Counts:
    """The sum over several partitions."""
    return Counts(*(sum(numbers) for numbers in zip(*all_of_them, strict=True)))
