"""The part of a tenant's quota that one push reserves."""

from collections.abc import Callable, Sequence
from typing import Self


class Charge:
    """The jobs and bytes that a push has reserved of its tenant's quota. At the end of the `with` block the unused part
    is given back to the quota."""

    def __init__(self, jobs: int = 0, size_bytes: int = 0) -> None:
        self.reserved = jobs, size_bytes
        self._taken = 0, 0
        self._move: Callable[[Sequence[int]], None] | None = None
        self._settle: list[Callable[[int, int], None]] = []

    def taken(self, homes: Sequence[int], size_bytes: int) -> None:
        """Note that some jobs of the push are in the journal, so their part of the reservation is used up.

        `homes`: the partition of each of these jobs. `size_bytes`: the size of all of them together.
        """
        if self._settle:
            self._taken = self._taken[0] + len(homes), self._taken[1] + size_bytes
        if self._move is not None:
            self._move(homes)

    def when_taken(self, move: Callable[[Sequence[int]], None]) -> None:
        """Register the function that `taken` calls with the partition of each job that was journaled."""
        self._move = move

    def when_over(self, settle: Callable[[int, int], None]) -> None:
        """Register a function for the end of the `with` block. It is called with the number of jobs and of bytes that
        were journaled."""
        self._settle.append(settle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Call the functions registered by `when_over`, which give the unused part back to the quota."""
        for settle in self._settle:
            settle(*self._taken)


FREE = Charge()
"""The charge for pushes that no quota limits: it reserves nothing."""
