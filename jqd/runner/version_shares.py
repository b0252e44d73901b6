"""Which version of a handler takes the next batch, so that each gets its share of the jobs. By one daemon.

The one that is most behind its share is next, whoever has room: so a canary gets no more than its part while the older
ones are full or away, for a bad one does most harm just then. But what a newer one has no room for the oldest takes,
and it counts as the newer one's: who is slow, backed off or away stops nobody, and nothing is made up for later.
"""

from collections import Counter
from collections.abc import Iterable

from jqd.runner.worker import Worker

Roomy = tuple[float, int, Worker]  # which part of it is free, and how much


class VersionShares:
    """Of all handlers."""

    def __init__(self) -> None:
        self._given: dict[str, Counter[str]] = {}  # handler → jobs by version, since the latest one came
        self._next: dict[str, str] = {}

    def among(self, jobtype: str, takers: Iterable[Worker], roomy: list[Roomy]) -> list[Roomy]:
        """Those with room but for versions that are not to take the next batch.

        `takers`: all workers that take such jobs, with room or without; versions stand there oldest first.
        """
        versions = [one for one in takers if one.handler == jobtype]
        if not versions:
            return roomy
        oldest = versions[0]
        given = self._given.get(oldest.handler, Counter())
        if any(one.id not in given for one in versions):
            given = self._given[oldest.handler] = Counter({one.id: 0 for one in versions})
        jobs = 1 + sum(given[one.id] for one in versions)
        due = max(versions, key=lambda one: one.share * jobs - given[one.id])
        self._next[oldest.handler] = due.id
        free = {worker.id for *_, worker in roomy}
        chosen = next((one for one in (due, oldest) if one.id in free), None)
        return [one for one in roomy if one[2] is chosen or one[2] not in versions]

    def took(self, worker: Worker, jobtype: str, jobs: int) -> None:
        """It was given so many: they count as those of the version whose turn it was."""
        if worker.handler == jobtype and jobtype in self._next:
            self._given[jobtype][self._next[jobtype]] += jobs
