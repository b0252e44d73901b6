"""How many jobs of each jobtype are in this daemon's hand. Asserts, never clamps: a wrong count is a bug to find."""

from collections.abc import Mapping


class Counts:
    """Raised when jobs are claimed, lowered when they are out of hand; a jobtype at zero is forgotten."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self.started_total = 0
        self.stopped_total = 0

    def started(self, jobtype: str, count: int) -> None:
        """`count` (at least 1) more jobs are in hand."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have started"
        self._running[jobtype] = self._running.get(jobtype, 0) + count
        self.started_total += count

    def stopped(self, jobtype: str, count: int) -> None:
        """`count` (at least 1) of the jobs that were started are out of hand."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have stopped"
        left = self._running.get(jobtype, 0) - count
        assert left >= 0, f"{-left} jobs of {jobtype!r} stopped that never started"
        if left:
            self._running[jobtype] = left
        else:
            del self._running[jobtype]
        self.stopped_total += count

    def running(self) -> Mapping[str, int]:
        """Jobtype → jobs in hand, a copy; jobtypes with none are absent."""
        return dict(self._running)
