"""What a checker found in a history."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.history import History

SHOWN_MAX = 5

Rule = Callable[[History], Iterator[str]]


@dataclass(frozen=True)
class Verdict:
    """What the rules found, and what the run was like."""

    violations: Mapping[str, list[str]]
    figures: Mapping[str, float]
    rules: Mapping[str, str]
    """What each demands."""
    excused: Mapping[str, int] = field(default_factory=dict)
    """Known limits that something was excused with, and how often."""

    def text(self) -> str:
        """For people."""
        lines = [f"{name} {value:g}" for name, value in self.figures.items()]
        lines += [f"excused {times} times: {limit}" for limit, times in self.excused.items()]
        for code, found in self.violations.items():
            lines += [self.rules[code]] + [f"    {each}" for each in found[:SHOWN_MAX]]
            lines += [f"    … {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
        return "\n".join([*lines, "rules are broken" if self.violations else "all rules hold"])


def promises(rules: Mapping[str, Callable[..., object]]) -> dict[str, str]:
    """What rules demand, as their docstrings say it."""
    return {code: rule.__doc__ or "" for code, rule in rules.items()}
