"""What must hold of constraints: never more start in a window, or are at work at once, than is allowed.

rate         of the jobs that were claimed after all could know of it, no more were claimed in any window than it allows
concurrency  of those, no more are at work at once by daemons, or workers, that rightly trust their leases

Each partition of the store holds it by itself, from a second after its answer to the next word on it, the time not
counted in which the daemon that was told, or the one that claims, could not speak to the store. Once it is known it
holds through whatever comes: a store that forgot it gives nothing before it is told again.

What runs again after a success that the store forgot while its daemon was away has ended once that one is back, and
has no place any more, though a worker is still at it.
"""

import math
from collections.abc import Callable, Sequence

import trio

from jqd.domain.jobid import partition_of
from tests.simulation.notes import Notes
from tests.simulation.said import HEARD_S, Word
from tests.simulation.say import LIMITS, PUT, Limit

CLOCK_S = 0.002  # clocks are read in whole milliseconds


class Limited:
    """All that started under each word."""

    def __init__(
        self, history: Notes, words: Sequence[Word], succeeded: Callable[[str], bool] = lambda job_id: False
    ) -> None:
        """`succeeded`: whether an attempt of that job did, by its id."""
        self._history, self._words, self._succeeded = history, words, succeeded
        self._claimed: dict[tuple[int, int], dict[str, float]] = {}
        """By the place of the word and the partition: job → when it was claimed last."""

    def started(self, life: str, jobtype: str, job_id: str, fence: int) -> None:
        """A worker has a job, claimed under that fence."""
        home = partition_of(job_id, self._history.plan.partitions)
        claimed_s = self._history.claimed_s.get((home, fence), -math.inf)
        for name in LIMITS:
            found = self._holding(name, jobtype)
            if found is None:
                continue
            place, limit = found
            word = self._words[place]
            if claimed_s > self._known_s(word, life.partition(".")[0]) and not self._forgotten(home, word):
                claimed = self._claimed.setdefault((place, home), {})
                claimed[job_id] = claimed_s
                (self._check_rate if limit.per_s else self._check_at_work)(name, limit, claimed)

    def _known_s(self, word: Word, node: str) -> float:
        """When that node could know of it, and the store, too."""
        at_s = word.answered_s
        while (hindered_s := self._history.hindered_to(word.sent_s, at_s + HEARD_S, word.node, node)) > at_s:
            at_s = hindered_s
        return at_s + HEARD_S

    def _forgotten(self, home: int, word: Word) -> bool:
        """Whether the store may have lost it while nobody was there who heard of it: not even who took it."""
        now_s, nodes = trio.current_time(), (f"d{number}" for number in range(self._history.plan.nodes))
        return self._history.forgotten(home, word.answered_s, word.node, now_s) and all(
            self._history.was_away(home, node, word.sent_s, now_s) for node in nodes
        )

    def _holding(self, name: str, jobtype: str) -> tuple[int, Limit] | None:
        """The last word on a constraint, if it surely is."""
        words = [(place, word) for place, word in enumerate(self._words) if word.say.name == name]
        for place, word in words:
            limit = word.say.limit
            if word.say.what != PUT or limit is None or jobtype not in limit.jobtypes:
                continue
            if all(other.answered_s < word.sent_s for _, other in words if other is not word):
                return place, limit
        return None

    def _check_rate(self, name: str, limit: Limit, claimed: dict[str, float]) -> None:
        ordered = sorted(claimed.values())
        for first_s, over_s in zip(ordered, ordered[limit.most :], strict=False):
            if over_s - first_s < limit.per_s - CLOCK_S - self._history.wrong_s(over_s):
                more = f"{limit.most + 1} in {over_s - first_s:.3f} s from {first_s:.3f} s on"
                self._history.wrong(f"rate: {name} allows {limit.most} in {limit.per_s:g} s, and {more} were claimed")
                return

    def _check_at_work(self, name: str, limit: Limit, claimed: dict[str, float]) -> None:
        at_work = [job_id for job_id in claimed if any(self._history.runs(job_id, ""))]
        at_work = [job_id for job_id in at_work if not self._succeeded(job_id)]
        if len(at_work) > limit.most:
            self._history.wrong(f"concurrency: {name} allows {limit.most} at once, and {sorted(at_work)} are at work")
