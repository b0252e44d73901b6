"""All runners of a daemon, one for each partition of the store: finds one by a job's id, and sums over all."""

from collections.abc import Iterable, Sequence
from typing import Any

from jqd.domain.job import Held, Outcome
from jqd.domain.jobid import partition_of
from jqd.runner.outcome import Report
from jqd.runner.runner import Runner, Running


class Runners:
    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners

    def done(self, job_id: str, report: Report, *, fence: int = 0, worker_id: str = "") -> bool:
        return self._of(job_id).done(job_id, report, fence=fence, worker_id=worker_id)

    def ended(self, job_id: str) -> Outcome | None:
        return self._of(job_id).ended(job_id)

    async def wait_durable(self, job_id: str) -> None:
        await self._of(job_id).wait_durable(job_id)

    def end(self, held: Held, report: Report, worker_id: str) -> Outcome:
        return self._of(held.job.id).end(held, report, worker_id)

    def release_undelivered(self, claims: Iterable[tuple[str, int]], *, told: bool = False) -> None:
        for claim in claims:
            self._of(claim[0]).release_undelivered([claim], told=told)

    def succeed_late(self, attempt: Outcome, report: Report) -> Outcome | None:
        return self._of(attempt.job_id).succeed_late(attempt, report)

    def running(self, job_id: str) -> Running | None:
        return self._of(job_id).running(job_id)

    @property
    def in_hand(self) -> int:
        """Return the jobs in flight: queued, running, or stopped and not yet known to the store."""
        return sum(runner.in_hand for runner in self._runners)

    def stats(self) -> dict[str, Any]:
        total, *others = (runner.stats() for runner in self._runners)
        for name, count in total.items():
            if isinstance(count, int):
                total[name] = count + sum(other[name] for other in others)
        return total  # they share the workers

    def _of(self, job_id: str) -> Runner:
        runners = self._runners
        return runners[0] if len(runners) == 1 else runners[partition_of(job_id, len(runners))]
