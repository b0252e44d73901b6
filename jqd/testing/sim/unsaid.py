"""Mistakes about rules, planted as those of `bugs.py`: what was said of a worker is not known, or not for long."""

from typing import Any

from jqd.loops.rules import Follow
from jqd.testing.sim.mistake import Mistake, Real, in_scripts, mistake
from jqd.words.rules import Rule, Rules


def _always(real: Real) -> Real:
    return lambda rule, other: True


def _once(real: Real) -> Real:
    async def ask(self: Follow) -> bool:
        asked, self.__dict__["asked"] = "asked" in self.__dict__, True
        return False if asked else bool(await real(self))

    return ask


def _by_clock_alone(real: Real) -> Real:
    def make(self: Rules, *args: Any, **named: Any) -> list[Rule]:
        self._highest = 0
        made: list[Rule] = real(self, *args, **named)
        return made

    return make


UNSAID: dict[str, Mistake] = {
    "last-come-holds": mistake(
        "lag,lost",
        0,
        "older,apart,newer",
        "of two rules the one that comes last holds",
        (Rule, "beats", _always),
        in_scripts("if tonumber(revision) > number or", "if revision or"),
        rules=True,
    ),
    "never-asked-again": mistake(
        "lost",
        0,
        "apart,newer",
        "a daemon asks the store for rules when it starts only",
        (Follow, "_ask", _once),
        rules=True,
    ),
    "revisions-by-clock": mistake(
        "clock",
        0,
        "newer,older",
        "a rule is numbered by the wall clock alone",
        (Rules, "make", _by_clock_alone),
        rules=True,
    ),
}
"""By name."""
