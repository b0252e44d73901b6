"""What rounds mean: the order of queues in each, medians with their spread, and ratios within one round."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

One = TypeVar("One")
Round = dict[str, dict[str, float]]
"""Figures by queue; of a queue that failed in it there are none."""


@dataclass(frozen=True)
class Spread:
    """A median between the least and the greatest."""

    median: float
    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.least)}–{_short(self.greatest)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rotated(all_: Sequence[One], turn: int) -> list[One]:
    """In the order of this turn: in as many turns as there are, each is the first once."""
    at = turn % len(all_) if all_ else 0
    return [*all_[at:], *all_[:at]]


def spread(values: Sequence[float]) -> Spread | None:
    """Of one figure over several rounds; None of none."""
    return Spread(median(values), min(values), max(values)) if values else None


def of(rounds: Sequence[Round], peer: str, figure: str) -> Spread | None:
    """A figure of a queue."""
    return spread([each[peer][figure] for each in rounds if figure in each.get(peer, {})])


def ratio(rounds: Sequence[Round], one: str, other: str, figure: str) -> Spread | None:
    """How many times as much the one has as the other, from rounds in which both took part."""
    pairs = [
        (each[one][figure], each[other][figure])
        for each in rounds
        if figure in each.get(one, {}) and figure in each.get(other, {})
    ]
    return spread([mine / theirs for mine, theirs in pairs if theirs])
