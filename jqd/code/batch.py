"""Leased jobs, the batches in which they run, and their outcomes in the form that POST /v1/outcomes takes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from jqd.code.definition import Definition
from jqd.code.output import NO_LOG, Log
from jqd.code.process import Process
from jqd.domain import json_ext
from jqd.domain.json_large import packed_of
from jqd.worker.lease import Outcome

MESSAGE_CHARS_MAX = 16_384  # the end of a message: as much as a daemon keeps
CANCELLED_STATUS = 499  # of a cancelled job
NO_RESPONSE = "NO_RESPONSE"
TIMEOUT = "TIMEOUT"
CANCELLED = "cancelled"  # reason why a process was killed; STOPPING and LATE are others
STOPPING = "its worker stops"
LATE = "late"


class LeasedJob(msgspec.Struct, frozen=True):
    """A job as a daemon leases it. Fields of the API answer that are not declared here are ignored."""

    job_id: str
    name: str
    argument: Raw
    """Encoded as MessagePack."""
    attempt: int
    max_retry: int
    timeout: float
    created_at: str = ""
    deadline: str = ""

    @property
    def argument_json(self) -> bytes:
        return json_ext.json_of(bytes(self.argument))


def refused(job: LeasedJob, why: str, *, begun: bool = False) -> Outcome:
    return Outcome(job_id=job.job_id, type="refused", interrupted=begun, message=why)


def cancelled(job: LeasedJob) -> Outcome:
    return Outcome(job_id=job.job_id, status=CANCELLED_STATUS, message="cancelled", error="cancelled")


def failed(job: LeasedJob, message: str, log: Log = NO_LOG, *, status: int = 500) -> Outcome:
    message = message[-MESSAGE_CHARS_MAX:]
    return Outcome(job_id=job.job_id, status=status, message=message, log=log.text, log_from=log.start)


def timed_out(job: LeasedJob, log: Log, of: str = "") -> Outcome:
    """Return the outcome of a job that was killed at a timeout. `of`: text of the time limit; empty: the job's own."""
    message = f"{TIMEOUT}: it did not end within {of or f'{job.timeout:g} s'}, and was killed with all it had started"
    outcome = failed(job, message, log, status=504)
    outcome.reason = "timeout"
    return outcome


def succeeded(job: LeasedJob, result: Any, follows: Sequence[dict[str, str]], log: Log, status: int = 200) -> Outcome:
    return Outcome(job_id=job.job_id, status=status, result=result, jobs=follows, log=log.text, log_from=log.start)


def result_of(text: bytes) -> Raw:
    """Convert a JSON value to MessagePack. Raises ValueError."""
    return Raw(packed_of(text, json_ext.decode))


class Batch:
    """Jobs of one handler that run together, in one process."""

    def __init__(
        self,
        definition: Definition,
        jobs: Sequence[LeasedJob],
        settle: Callable[[Outcome], None],
        unwanted: Mapping[str, bool] | None = None,
    ) -> None:
        """`settle`: called with the outcome of each job. `unwanted`: id of a job that must not begin → True: its lease
        is lost; False: it was cancelled. The lease adds to it while the batch runs."""
        self.definition = definition
        self.left = list(jobs)
        """Jobs that have not ended, in order. The first one is running, or runs next."""
        self.process: Process | None = None
        """The process that now runs the batch; None: no process does."""
        self._settle = settle
        self._unwanted = {} if unwanted is None else unwanted

    def end(self, outcome: Outcome) -> None:
        self.left = [job for job in self.left if job.job_id != outcome.job_id]
        self._settle(outcome)

    def stop(self, job_id: str) -> None:
        """Kill the process if it is running this job, because the job was cancelled or is no longer leased to this
        worker."""
        if self.process is not None and any(self._runs(job) for job in self.left if job.job_id == job_id):
            self.process.kill(CANCELLED)

    def printed(self, job_id: str, start: int) -> Log:
        """Return the output of a job from byte `start` on; nothing if the job is not running."""
        if self.process is None or self.process.output is None or not self.left or self.left[0].job_id != job_id:
            return NO_LOG
        return self.process.output.since(start)

    def skip_unwanted(self) -> None:
        for job in list(self.left):
            if job.job_id in self._unwanted:
                if self._unwanted[job.job_id]:
                    self.left.remove(job)
                else:
                    self.end(cancelled(job))

    def charge_process(self, process: Process, log: Log, time: str = "") -> None:
        """Record an outcome for the job that was running when the process ended: failed or timed out. There is none if
        the process was killed because a job was cancelled or the worker stops. The other jobs stay in `left`, for
        another process.

        `time`: time limit of the whole process as text, if that was exceeded; empty: the job exceeded its own.
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
        """Return whether the process is running a job now. A shell process (sh) runs all jobs of its batch at once."""
        return self.definition.lang == "sh" or job is self.left[0]
