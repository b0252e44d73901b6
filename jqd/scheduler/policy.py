"""Who goes first: a ranking of waiting jobtypes, smallest key first.

A policy sees what waits and what runs and gives each jobtype a key. Priority leads in every policy: the smallest
number over all jobtypes runs first (the LightJQ rule), whatever else is weighed among equals.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Waiting(Protocol):
    """A jobtype with jobs ready to run, as the store tells it."""

    @property
    def jobtype(self) -> str:
        """The jobtype's name."""
        ...

    @property
    def priority(self) -> int:
        """Of its best waiting job; smaller is better."""
        ...

    @property
    def head_id(self) -> str:
        """Id of that job; ids sort by age."""
        ...

    @property
    def waiting(self) -> int:
        """How many of its jobs wait."""
        ...


class Policy(Protocol):
    """A pure ranking."""

    def key(self, row: Waiting, running: Mapping[str, int]) -> tuple[Any, ...]:
        """Sort key of `row`, the smallest going first; begins with the priority. `running`: jobtype → jobs in hand."""
        ...


class OldestFirst:
    """Among equal priorities the job that waits longest goes first, so no jobtype starves an equal one."""

    def key(self, row: Waiting, running: Mapping[str, int]) -> tuple[Any, ...]:
        """Priority, then age, then the name, so that equal rows keep one order on every daemon."""
        return (row.priority, row.head_id, row.jobtype)
