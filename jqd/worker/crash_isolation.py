"""What becomes of the jobs of a process that has died, or of which one is past its time: who is blamed, who is not.

died by itself with one job      that job has failed
died by itself with several      each is handed back, a suspect: next time it is alone
killed for another job           each is handed back
past its time, alone             that job has timed out, or was cancelled and did not look
past its time among others       any of them may block the loop: each is handed back, a suspect
"""

from collections.abc import Iterable, Sequence

from jqd.domain.log import get_logger
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Item
from jqd.worker.process import Process

SUSPECTS_MAX = 10_000  # remembered by their ids; the oldest goes first


class CrashSuspects:
    """The ids of jobs that are to run alone here when they come again."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._ids

    def add(self, ids: Iterable[str]) -> None:
        """Remember these ids; of all ids only the newest SUSPECTS_MAX."""
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > SUSPECTS_MAX:
            del self._ids[next(iter(self._ids))]

    def clear(self, job_id: str) -> None:
        """Forget a suspect: it ran alone and nothing happened."""
        self._ids.pop(job_id, None)


class CrashIsolation:
    def __init__(self, attempts: Attempts, suspects: CrashSuspects) -> None:
        self._attempts, self._suspects = attempts, suspects
        self._log = get_logger("worker")

    def settle(self, process: Process) -> None:
        process.bring_in()
        at_work = [held.item for held in process.held.values() if not held.item.ended]
        process.held.clear()
        if process.was_killed:
            why = "its process was stopped because of another job"
            outcomes = [self._attempts.refused(item.batch.codec, item.job_id, why, begun=True) for item in at_work]
        elif len(at_work) == 1:
            outcomes = [self._attempts.died(at_work[0], process.how)]
        else:
            why = f"its process died ({process.how}) with {len(at_work)} jobs; next time it is alone"
            outcomes = [self._attempts.refused(item.batch.codec, item.job_id, why, begun=True) for item in at_work]
            self._suspects.add(item.job_id for item in at_work)
        for item, outcome in zip(at_work, outcomes, strict=True):
            self._log.warning("worker.job_lost_its_process", job_id=item.job_id, name=item.job.name, how=process.how)
            item.stop = None
            item.batch.put(item, outcome)

    def end_late(self, process: Process, late: Sequence[Item]) -> None:
        """End a process with jobs past their time: the only one has timed out; of several any may block the others."""
        for item in late:
            self._log.warning("worker.killed", job_id=item.job_id, name=item.job.name, pid=process.pid)
        process.bring_in()
        items = [held.item for held in process.held.values()]
        if len(items) > 1:
            self._suspects.add(item.job_id for item in items)
        why = f"one of {len(items)} jobs blocked the loop of its process; next time it is alone"
        for item in items:
            refused = self._attempts.refused(item.batch.codec, item.job_id, why, begun=True)
            alone = self._attempts.cancelled(item, "its process was ended") if item.cancelled else None
            item.batch.put(item, refused if len(items) > 1 else alone or self._attempts.timed_out(item))
        process.kill()
