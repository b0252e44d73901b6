"""The runners of a daemon, one for each partition of the store: finds a job's runner, and adds up their counts."""

from collections.abc import Iterable, Sequence
from typing import Any

from jqd.domain.jobid import partition_of
from jqd.runner.runner import Runner


class Runners:
    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners

    def of(self, job_id: str) -> Runner:
        runners = self._runners
        return runners[0] if len(runners) == 1 else runners[partition_of(job_id, len(runners))]

    def release_undelivered(self, claims: Iterable[tuple[str, int]], *, maybe_delivered: bool = False) -> None:
        for claim in claims:
            self.of(claim[0]).release_undelivered([claim], maybe_delivered=maybe_delivered)

    @property
    def in_flight(self) -> int:
        """Number of jobs in flight: queued, running, or stopped and not yet known to the store."""
        return sum(runner.in_flight for runner in self._runners)

    @property
    def is_working(self) -> bool:
        """Whether a job is queued or running at this daemon."""
        return any(runner.is_working for runner in self._runners)

    def stats(self) -> dict[str, Any]:
        total, *others = (runner.stats() for runner in self._runners)
        for name, count in total.items():
            if isinstance(count, int):
                total[name] = count + sum(other[name] for other in others)
        return total  # with the workers of one runner: all share them
