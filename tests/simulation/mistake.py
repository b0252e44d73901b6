"""What is exchanged in the real code for the time of a block, and where the simulation finds it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jqd.store.functions import Library
from jqd.testing import store
from tests.harness.bugs import Bug

Real = Callable[..., Any]


class Mistake(NamedTuple):
    """One of them, to be planted by name."""

    parts: tuple[Bug, ...]
    kinds: frozenset[str]
    """Faults under which it shows."""
    seed: int
    """The first with which it does, as the code is now."""
    finds: tuple[str, ...]
    """How the violation begins: with one of these."""
    partitions: int = 1
    """Of the store."""
    given: Mapping[str, bool] = {}
    """What its runs have, whatever their seeds say: see `plan.SHARES`."""
    dense: int = 1
    """So many times as much to do, where a rare moment must be met: else one seed of hundreds would show it."""

    @property
    def what(self) -> str:
        """One sentence."""
        return self.parts[0].what


def in_scripts(piece: str, wrong: str) -> tuple[Any, str, Callable[[Any], Any]]:
    """A part that exchanges a piece of Lua in all files of the store that have it. LookupError: none has it once."""

    def plant(real: Library) -> Library:
        found = [name for name, text in real.files.items() if text.count(piece) == 1]
        if not found:
            raise LookupError(f"no file has once what is to be wrong in it: plant the mistake where this went: {piece}")
        return Library({**real.files, **{name: real.files[name].replace(piece, wrong) for name in found}})

    return store, "LIBRARY", plant


def mistake(
    kinds: str,
    seed: int,
    finds: str,
    what: str,
    *parts: tuple[Any, str, Callable[[Any], Any]],
    partitions: int = 1,
    dense: int = 1,
    **given: bool,
) -> Mistake:
    """`finds`: with commas. `given`: see `plan.SHARES`.

    `parts`: what is exchanged: its owner, its name, and what makes the mistaken one of the real one.
    """
    bugs = tuple(Bug(what, owner, name, plant) for owner, name, plant in parts)
    named, found = frozenset(kinds.split(",")) - {""}, tuple(finds.split(","))
    return Mistake(bugs, named, seed, found, partitions, given, dense)
