"""A push's charge on its tenant's quota."""

from collections.abc import Callable, Sequence
from typing import Self


class Charge:
    """What a push has reserved of its tenant's quota. At the end of the `with` block the unused part goes back."""

    def __init__(self, jobs: int = 0, size_bytes: int = 0) -> None:
        self.reserved = jobs, size_bytes
        self._taken = 0, 0
        self._move: Callable[[Sequence[int]], None] | None = None
        self._settle: list[Callable[[int, int], None]] = []

    def taken(self, homes: Sequence[int], size_bytes: int) -> None:
        """Note that jobs of the push are in the journal and use their part of the reservation.

        `homes`: the partition of each job. `size_bytes`: of all of them.
        """
        if self._settle:
            self._taken = self._taken[0] + len(homes), self._taken[1] + size_bytes
        if self._move is not None:
            self._move(homes)

    def when_taken(self, move: Callable[[Sequence[int]], None]) -> None:
        """Call `move` with the partitions of jobs when they are journaled."""
        self._move = move

    def when_over(self, settle: Callable[[int, int], None]) -> None:
        """Call `settle` at the end with the number of jobs and bytes that were journaled."""
        self._settle.append(settle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Call the functions of `when_over`, which give back what the push did not use."""
        for settle in self._settle:
            settle(*self._taken)


FREE = Charge()
"""The charge of pushes that no quota limits."""
