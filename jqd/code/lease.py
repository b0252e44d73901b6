"""A lease of jobs whose handlers are code: what they ask for in `J:` lines may be refused, line by line."""

import re
from collections.abc import Callable, Sequence

import httpx2

from jqd.code.outcome import LeasedJob
from jqd.worker.lease import Lease, Outcome

OF_JOBS = "jobs: "  # how a daemon begins to say what is wrong with the jobs that an outcome asks for
AS_A_WHOLE = "; nothing of this outcome was taken"  # and how it ends
STRUCK_MAX = 20  # of one outcome, one report each; more of them, and no line of it counts
STRUCK_CHARS = 128  # of the name in such a line: as long as a jobtype's may be
_PLACE = re.compile(rf"{OF_JOBS}jobs/([0-9]+)")


class CodeLease(Lease):
    def __init__(
        self,
        lease_id: str,
        jobs: Sequence[LeasedJob],
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        silence_s: float,
        away: Callable[[], None],
    ) -> None:
        """See `Lease`."""
        super().__init__(lease_id, [job.job_id for job in jobs], http, daemon, silence_s, away, "code")
        self.jobs = list(jobs)
        self._struck: dict[str, int] = {}  # how many of the jobs that it asked for cannot be pushed

    def _mend(self, outcome: Outcome, why: str) -> bool:
        """Take the job out that cannot be pushed, and say so in the log: what has succeeded stays a success."""
        if not outcome.jobs or not why.startswith(OF_JOBS):
            return False
        jobs, named = list(outcome.jobs), _PLACE.match(why)
        struck = self._struck[outcome.job_id] = self._struck.get(outcome.job_id, 0) + 1
        if named is not None and int(named[1]) < len(jobs) and struck < STRUCK_MAX:
            told = f"J: {str(jobs.pop(int(named[1])).get('name', ''))[:STRUCK_CHARS]}"
        else:
            told, jobs = f"{len(jobs)} J: lines", []
        self._log.warning("code.line_refused", job_id=outcome.job_id, line=told, why=why)
        why = why.removeprefix(OF_JOBS).removesuffix(AS_A_WHOLE)
        line = f"jqd: no job was pushed for {told!r}: {why}"
        outcome.jobs, outcome.log = jobs, f"{outcome.log}\n{line}".lstrip("\n")
        return True
