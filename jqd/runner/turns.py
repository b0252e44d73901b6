"""How the versions of a handler take turns, so that each gets its share of the jobs, however many wait. By one daemon.

A version with older ones beside it never gets more than its share of what this daemon hands over: one that was given
enough waits, however much room it has and however little the older ones have. For each job that goes out it is owed
its share of one; what it is owed it gets before the others. The oldest takes all that is left, also what newer ones
have no room for: so one that is slow, backed off or away stops nobody.
"""

from collections.abc import Callable, Sequence

from jqd.runner.limits import Gate
from jqd.runner.worker import Worker
from jqd.words.job import Held

ANY_NUMBER = 1 << 30  # for a worker that does not have to wait for others
_ROUNDING = 1e-6  # ten tenths are one


class Turns:
    """Costs nothing for workers that are no versions, and for versions that are alone."""

    def __init__(self, versions: Callable[[str], Sequence[Worker]], gate: Callable[[Worker], Gate]) -> None:
        """`versions`: of a handler, oldest first."""
        self._versions = versions
        self._gate = gate

    def jobs_max(self, worker: Worker, jobtype: str, priority: int) -> int:
        """How many such jobs it may be given now."""
        if not _has_turns(worker, jobtype) or not any(one.takes(jobtype, priority) for one in self._older(worker)):
            return ANY_NUMBER
        return self._due(worker)

    def is_due(self, worker: Worker, jobtype: str) -> bool:
        """Whether `jobs_max` may be more than 0 for some priority."""
        if not _has_turns(worker, jobtype) or self._due(worker):
            return True
        span = worker.priority_min, worker.priority_max
        return not any(all(one.takes(jobtype, each) for each in span) for one in self._older(worker))

    def took(self, worker: Worker, jobtype: str, held: Sequence[Held]) -> None:
        """It is given these."""
        self._count(worker, jobtype, held, 1)

    def returned(self, worker: Worker, jobtype: str, held: Held) -> None:
        """It has not tried this one: as if it had not been given."""
        self._count(worker, jobtype, [held], -1)

    def _count(self, worker: Worker, jobtype: str, held: Sequence[Held], sign: int) -> None:
        if not _has_turns(worker, jobtype):
            return
        for version in self._versions(worker.handler):
            older = self._older(version)
            jobs = sum(any(one.takes(jobtype, each.job.priority) for one in older) for each in held) * sign
            if not jobs:
                continue
            gate, more = self._gate(version), jobs * version.share
            # What it had no room for is not made up for later, but for as much as it can have in hand.
            gate.owed = min(gate.owed + more, max(gate.owed, more, gate.window(jobtype)))
            gate.owed -= jobs if version.id == worker.id else 0

    def _due(self, worker: Worker) -> int:
        return max(0, int(self._gate(worker).owed / (1 - worker.share) + _ROUNDING))

    def _older(self, worker: Worker) -> Sequence[Worker]:
        """Those beside it that were said before it."""
        versions = self._versions(worker.handler)
        place = next((n for n, one in enumerate(versions) if one.id == worker.id), 0)
        return versions[:place]


def _has_turns(worker: Worker, jobtype: str) -> bool:
    return worker.share < 1 and jobtype == worker.handler
