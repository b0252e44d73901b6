"""What happened, noted in order, and what was found wrong with it: stories and tales of jobs are checked against it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import trio

from jqd.domain.job import Fate
from tests.simulation.causes import Attempt, Causes
from tests.simulation.plan import STORE, Plan


class Notes(Causes):
    """All that is noted of one run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.partitions)
        self.plan = plan
        self.violations: list[str] = []
        self.told: Callable[[str], None] = lambda violation: None
        """Told of each."""
        self.events: list[tuple[Any, ...]] = []
        self.claims: dict[tuple[int, int], int] = {}
        """Partition and fence of each claim → its moment."""
        self.claimed_s: dict[tuple[int, int], float] = {}
        """The same by the clock."""
        self.runs: Callable[[str, str], Iterator[str]] = lambda job_id, life: iter(())
        self.claims_given: set[tuple[str, int]] = set()
        """Claims (id, fence) that their worker may know of."""
        self.claims_untried: set[tuple[str, int]] = set()
        """Those that the store took back as if they had not been."""
        self._moments = 0

    def watch(self, runs: Callable[[str, str], Iterator[str]]) -> None:
        """`runs`: given a job and a life, names of other lives at work on it that trust their lease now."""
        self.runs = runs

    def moment(self) -> int:
        """A new one: what happens at the same time by the world's clock happens one after the other."""
        self._moments += 1
        return self._moments

    def is_poison(self, reason: str) -> bool:
        """Whether a job is not tried any more for having been in flight at deaths, of which there were enough."""
        deaths = sum(away.why in ("killed", "paused", "cut off") for away in self.aways)
        return reason == "crash" and deaths >= STORE.crash_limit

    def unheard_of(self, job_id: str, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Claims of it that their worker was to be told of, besides those that it began.

        An answer that was lost, as its daemon died, nobody can tell from a worker that began and died.
        """
        began = {attempt.fence for attempt in attempts}
        lost = self.claims_given - self.claims_untried
        return [Attempt("", "", fence, 0.0, Fate.RETRY) for its, fence in lost if its == job_id and fence not in began]

    def note(self, *what: Any) -> None:
        """Something for the event log."""
        self.events.append((round(trio.current_time(), 6), *what))

    def digest(self) -> str:
        """Of all events: two runs that agree in it did the same."""
        return hashlib.sha256("\n".join(map(repr, self.events)).encode()).hexdigest()

    def wrong(self, what: str) -> None:
        """A promise was broken."""
        self.note("VIOLATION", what)
        self.violations.append(f"{trio.current_time():.3f} s: {what}")
        self.told(self.violations[-1])

    def booted(self, life: str) -> None:
        """A process of a node begins."""
        self.note("boot", life)

    def claimed(self, home: int, fence: int) -> None:
        """The store gave jobs under that fence."""
        self.claims[home, fence] = self.moment()
        self.claimed_s[home, fence] = trio.current_time()
