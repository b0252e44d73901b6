"""What is exchanged in the real code for the time of a block, and where the simulation finds it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jqd.testing.bugs import Bug

Real = Callable[..., Any]


class Mistake(NamedTuple):
    """One of them, to be planted by name."""

    parts: tuple[Bug, ...]
    kinds: frozenset[str]
    """Faults under which it shows."""
    seed: int
    """The first with which it does, as the code is now."""
    finds: str
    """How the violation begins."""
    partitions: int = 1
    """Of the store."""
    changes: bool = False
    """Whether some jobs have names and are changed."""

    @property
    def what(self) -> str:
        """One sentence."""
        return self.parts[0].what


def mistake(
    kinds: str,
    seed: int,
    finds: str,
    what: str,
    *parts: tuple[Any, str, Callable[[Any], Any]],
    partitions: int = 1,
    changes: bool = False,
) -> Mistake:
    """`parts`: what is exchanged: its owner, its name, and what makes the mistaken one of the real one."""
    bugs = tuple(Bug(what, owner, name, plant) for owner, name, plant in parts)
    return Mistake(bugs, frozenset(kinds.split(",")), seed, finds, partitions, changes)
