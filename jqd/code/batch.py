"""Jobs of one lease that run together."""

from collections.abc import Callable, Mapping, Sequence

from jqd.code.definition import Definition
from jqd.code.outcome import LeasedJob, cancelled, failed, timed_out
from jqd.code.output import JobOutput, Log
from jqd.code.process import Process
from jqd.worker.lease import Outcome

CANCELLED = "cancelled"  # why a process was killed: no job of it is to blame
STOPPING = "its worker stops"
LATE = "late"


class Batch:
    def __init__(
        self,
        definition: Definition,
        jobs: Sequence[LeasedJob],
        settle: Callable[[Outcome], None],
        unwanted: Mapping[str, bool] | None = None,
    ) -> None:
        """`settle`: called with each outcome.

        `unwanted`: jobs that nobody waits for any more, each with whether its lease is lost; else it was cancelled.
        """
        self.definition = definition
        self.left = list(jobs)
        """Those that have not ended, in order: the first is at work, or the next."""
        self.process: Process | None = None
        """What runs it now."""
        self._settle = settle
        self._unwanted = {} if unwanted is None else unwanted

    def end(self, outcome: Outcome) -> None:
        self.left = [job for job in self.left if job.job_id != outcome.job_id]
        self._settle(outcome)

    def stop(self, job_id: str) -> None:
        """Note that a job is unwanted: the process that runs it is killed."""
        if self.process is not None and any(self._runs(job) for job in self.left if job.job_id == job_id):
            self.process.kill(CANCELLED)

    def printed(self, job_id: str) -> JobOutput | None:
        """Return what the job at work has printed."""
        is_at_work = self.process is not None and bool(self.left) and self.left[0].job_id == job_id
        return self.process.output if self.process is not None and is_at_work else None

    def skip_unwanted(self) -> None:
        for job in list(self.left):
            if job.job_id in self._unwanted:
                if self._unwanted[job.job_id]:
                    self.left.remove(job)
                else:
                    self.end(cancelled(job))

    def charge_process(self, process: Process, log: Log, time: str = "") -> None:
        """A process has ended with its first job that had not: of that job it says how, the others begin anew.

        `time`: the time limit that was over for all of them; empty: it was that job's own.
        """
        why = process.why_killed
        if why in (CANCELLED, STOPPING) or not self.left:
            return
        job = self.left[0]
        if why == LATE:
            self.end(timed_out(job, log, time))
        else:
            message = why or f"NO_RESPONSE: its process ended while it was at work: {process.how}"
            self.end(failed(job, message, log))

    def _runs(self, job: LeasedJob) -> bool:
        """Return whether the process runs that job now. A process of sh has all jobs at once."""
        return self.definition.lang == "sh" or job is self.left[0]
